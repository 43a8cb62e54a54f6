insert or ignore into name_index (name, event) select substr(id, 13) as name, id from events order by name, id;
drop index events_open;
create index events_ended on events (ended_at);
