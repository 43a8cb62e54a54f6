drop index events_zero;
drop index events_superseded;
drop index events_source;
drop index events_open;
create index events_open on events (state) where ended_at is null;
