-- Each index that every claim appends to costs two to three pages of each commit, so what people ask seldom has none.
--
-- When did the last event end? The newest events, the last attempts and `last_seen` tell. What is open is few, and has an
-- index that an event which ends with its claim is never in.
drop index events_ended;
create index events_open on events (id) where ended_at is null;
-- Whose body, and whose event, may be forgotten? Mostly both count from the event's end: one index answers both, and only
-- events for which the two differ (their subject's current ones) are in the other.
drop index events_keep;
create index events_keep on events (source, body, keep_from) where keep_from is not null;
drop index events_body;
create index events_body on events (source, ended_at) where body = 1 and keep_from is not ended_at;
-- The last digits of an id are looked for in `events_source`, which holds every id. Names are delivery ids only.
delete from name_index where name = substr(event, 13);
delete from fresh_names where name = substr(event, 13);
