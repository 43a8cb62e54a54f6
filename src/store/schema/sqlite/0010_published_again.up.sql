-- The messages of an event that were published after its first one: a JSON object, or null where there is none.
alter table events add column published_again text;
