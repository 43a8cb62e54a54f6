-- Earlier versions know nothing of notifications, which are forgotten with another event, nor of roll-backs, which run a
-- route that no delivery asked for. The former are removed; of the latter those that have not ended are cancelled, and
-- their slots are handed on.
delete from payloads where event in (select id from events where origin like '{"notification"%');
delete from attempts where event in (select id from events where origin like '{"notification"%');
delete from output where event in (select id from events where origin like '{"notification"%');
delete from receipts where event in (select id from events where origin like '{"notification"%');
delete from sightings where event in (select id from events where origin like '{"notification"%');
delete from duplicates where event in (select id from events where origin like '{"notification"%');
delete from events where origin like '{"notification"%';
update events set state = 'dead', cause = 'cancelled', wake_at = null, node = null, revision = revision + 1, version = version + 1,
    ended_at = (extract(epoch from now()) * 1000000)::bigint, keep_from = (extract(epoch from now()) * 1000000)::bigint
    where origin is not null and ended_at is null;
update slots set version = version + 1, event = parked.id from (
        select grp, id, row_number() over (partition by grp order by turn, id) as place from events
            where state = 'waiting' and wake_at is null and passed <> 1
    ) as parked
    where parked.grp = slots.grp and parked.place = 1
        and event in (select id from events where origin is not null and ended_at is not null);
delete from slots where event in (select id from events where origin is not null and ended_at is not null);
update events set wake_at = (extract(epoch from now()) * 1000000)::bigint, revision = revision + 1, version = version + 1
    where state = 'waiting' and wake_at is null and id in (select event from slots);
-- Earlier versions know only a register's current event, so the retention of what was only deployed or good begins.
update events set keep_from = (extract(epoch from now()) * 1000000)::bigint
    where ended_at is not null and keep_from is null and id not in (select event from registers);
-- Earlier versions would take an event with one of these causes for damaged. No delivery re-arms a cancelled one, either.
update events set cause = 'cancelled' where state = 'dead' and cause in ('over_budget', 'unhealthy');
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
