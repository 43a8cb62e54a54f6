-- For people who look, in the order of ids: what is open, the newest of one source, and whose place an event took.
drop index events_open;
create index events_open on events (id) where ended_at is null;
create index events_source on events (source, id);
create index events_superseded on events (superseded_by, id) where superseded_by is not null;
-- Events with a zero byte in a field, which no index by a field can hold.
create index events_zero on events (id) where strpos(fields::text, '\u0000') > 0;
