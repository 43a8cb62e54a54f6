-- Earlier versions create indexes by fields in their own form where there are none, and do not know the leftovers of an
-- index build.
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
-- Without `id` as its last column, as earlier versions had it.
drop index if exists events_due;
create index events_due on events (state, source, route, wake_at) where wake_at is not null;
drop table retention;
-- Without `since` it is unknown which events hold keys of another recipe: the recipes must be learned anew.
delete from scopes;
alter table scopes drop column since;
alter table keys drop column id_digest;
alter table events drop column published_again cascade; -- with the views that show it; they are made anew
alter table events drop column retrier cascade; -- with the views that show its fields as columns
drop table store_clock;
drop table last_seen;
drop table writers;
alter table events drop column action_kind cascade; -- as above
-- States of the nodes are no registers.
delete from registers where note is not null and event = '00000000-0000-0000-0000-000000000000';
alter table registers drop column note;
alter table events drop column failed_lookups cascade; -- as above
alter table events drop column notifications cascade; -- as above
alter table events drop column origin cascade; -- as above
alter table events drop column resolved cascade; -- as above
alter table events drop column burst_since cascade; -- as above
alter table events drop column aside cascade; -- as above
