insert or ignore into name_index (name, event) select substr(id, 13) as name, id from events order by name, id;
drop index events_open;
create index events_ended on events (ended_at);
drop index events_body;
create index events_body on events (source, ended_at) where body = 1;
drop index events_keep;
create index events_keep on events (source, keep_from) where keep_from is not null;
