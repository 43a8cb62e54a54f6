drop index events_due_part;
drop index events_id_end;
drop table retention;
-- Without `since` it is unknown which events hold keys of another recipe: the recipes must be learned anew.
delete from scopes;
alter table scopes drop column since;
alter table keys drop column id_digest;
alter table events drop column published_again;
alter table events drop column retrier;
drop table last_seen;
alter table events drop column action_kind;
-- States of the nodes are no registers.
delete from registers where note is not null and event = zeroblob(16);
alter table registers drop column note;
alter table events drop column failed_lookups;
alter table events drop column notifications;
alter table events drop column origin;
alter table events drop column resolved;
alter table events drop column burst_since;
alter table events drop column aside;
