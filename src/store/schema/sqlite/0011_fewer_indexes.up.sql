-- Each index that every claim appends to costs two to three pages of each commit, so what people ask seldom has none.
--
-- When did the last event end? The newest events, the last attempts and `last_seen` tell. What is open is few, and has an
-- index that an event which ends with its claim is never in.
drop index events_ended;
create index events_open on events (id) where ended_at is null;
-- The last digits of an id are looked for in `events_source`, which holds every id. Names are delivery ids only.
delete from name_index where name = substr(event, 13);
delete from fresh_names where name = substr(event, 13);
