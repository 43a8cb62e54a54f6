-- Who tries an event again: 0 its sender, which waits for the end; 1 a node, since the sender was told 202.
alter table events add column retrier integer not null default 0;
-- The messages of an event that were published after its first one: a JSON object, or null where there is none.
alter table events add column published_again text;
-- The delivery id that a body came under, where the id has no key of its own; null in what earlier versions wrote. And
-- since when a scope's identities are made as they are: what is older may hold keys that are made otherwise.
alter table keys add column id_digest blob;
alter table scopes add column since integer;
-- What time the store has last seen and believed: one row. A clock that is further ahead does not count for expiry at once.
create table last_seen (id integer primary key check (id = 1), at integer not null);
-- An event by the last digits of its id: all that people see of it.
create index events_id_end on events (substr(id, 13));
-- What kind of action an attempt was begun as, while it runs: run, forward, publish, sql or layer. Null in what earlier
-- versions began.
alter table events add column action_kind text;
