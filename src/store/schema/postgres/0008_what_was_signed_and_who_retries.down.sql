-- The versions before make indexes by fields in a form of their own, where there are none; and know nothing of what a
-- build left.
do $$ declare name text; begin
    for name in
        select indexname from pg_indexes where schemaname = current_schema() and tablename = 'events'
            and indexname ~ '^events_(field_|(new|old)_[0-9a-f]{16}$)'
    loop
        execute format('drop index %I', name);
    end loop;
end $$;
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
drop table store_clock;
drop table last_seen;
drop table writers;
alter table events drop column action_kind cascade; -- as above
