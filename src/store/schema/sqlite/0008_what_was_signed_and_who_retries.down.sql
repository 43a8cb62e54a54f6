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
update events set state = 'dead', cause = 'cancelled', wake_at = null, node = null, revision = revision + 1,
    ended_at = unixepoch() * 1000000, keep_from = unixepoch() * 1000000
    where origin is not null and ended_at is null;
update slots set event = parked.id from (
        select grp, id, row_number() over (partition by grp order by turn, id) as place from events
            where state = 'waiting' and wake_at is null and passed <> 1
    ) as parked
    where parked.grp = slots.grp and parked.place = 1
        and event in (select id from events where origin is not null and ended_at is not null);
delete from slots where event in (select id from events where origin is not null and ended_at is not null);
update events set wake_at = unixepoch() * 1000000, revision = revision + 1
    where state = 'waiting' and wake_at is null and id in (select event from slots);
-- Earlier versions know only a register's current event, so the retention of what was only deployed or good begins.
update events set keep_from = unixepoch() * 1000000
    where ended_at is not null and keep_from is null and id not in (select event from registers);
-- Earlier versions would take an event with one of these causes for damaged. No delivery re-arms a cancelled one, either.
update events set cause = 'cancelled' where state = 'dead' and cause in ('over_budget', 'unhealthy');
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
