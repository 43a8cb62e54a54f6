drop index if exists events_id_end;
drop index if exists events_due_part;
-- Without `id` as its last column, as the versions before made it.
drop index if exists events_due;
create index events_due on events (state, source, route, wake_at) where wake_at is not null;
drop table retention;
-- Without `since` nobody knows which events hold keys that are made otherwise: the recipes are to be learned anew.
delete from scopes;
alter table scopes drop column since;
alter table keys drop column id_digest;
alter table events drop column published_again cascade; -- with the views that show it; they are made anew
alter table events drop column retrier cascade; -- with the views that show its fields as columns
drop table last_seen;
drop table writers;
alter table events drop column action_kind cascade; -- as above
