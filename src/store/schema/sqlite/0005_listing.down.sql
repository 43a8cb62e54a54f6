drop index events_superseded;
drop index events_source;
