-- Who tries an event again: 0 its sender, which waits for the end; 1 a node, since the sender was told 202.
alter table events add column retrier smallint not null default 0;
-- The messages of an event that were published after its first one: a JSON object, or null where there is none.
alter table events add column published_again text;
-- The delivery id that a body came under, where the id has no key of its own; null in what earlier versions wrote. And
-- since when a scope's identities are made as they are: what is older may hold keys that are made otherwise.
alter table keys add column id_digest bytea;
alter table scopes add column since bigint;
-- What time the store has last seen and believed: one row. A clock that is further ahead does not count for expiry at once.
create table last_seen (id smallint primary key check (id = 1), at bigint not null);
-- What the nodes have agreed on of the store's clock, in microseconds. One row.
create table store_clock (
    id         smallint primary key check (id = 1),
    ahead      bigint   not null,              -- by how much it is ahead of this server's
    reached    bigint   not null,              -- what it has shown at least
    held_last  bigint,                         -- a lease that ends no later than this
    held_by    bigint,                         -- ends later by so much,
    held_until bigint                          -- while the clock shows less than this
);
-- The marks that processes leave after their writes: one that is gone, or went back, tells of lost data.
create table writers (
    name  bytea  primary key,      -- the process, made by chance
    wrote bigint not null          -- grows with each mark
);
-- What is due, in its order without sorting: on a route, and for one of its receivers. Where there are events, these are
-- built while nodes work.
do $$ begin
    if not exists (select from events) then
        drop index events_due;
        create index events_due on events (state, source, route, wake_at, id) where wake_at is not null;
        create index events_due_part on events (source, route, part, wake_at, id)
            where state = 'waiting' and wake_at is not null;
        create index events_id_end on events ((reverse(right(id::text, 12)) collate "C"));
    end if;
end $$;
-- What kind of action an attempt was begun as, while it runs: run, forward, publish, sql or layer. Null in what earlier
-- versions began.
alter table events add column action_kind text;
-- How long each source's events are kept, in microseconds, as the nodes that have the source say. A node that lacks the
-- source goes by its row, and forgets nothing of a source that has none.
create table retention (
    source    text   not null primary key,
    keep      bigint,                          -- an event with its keys; null: for ever
    keep_body bigint not null,                 -- its body, receipt and output
    seen_at   bigint not null                  -- when a node that has the source last said so
);
-- What an event waits aside for, with `passed` = 1: 'debounce' or 'budget'; null: its route is gone.
alter table events add column aside text;
-- When the first event of its burst arrived, where its route debounces.
alter table events add column burst_since bigint;
-- What the registry's tag pointed to when the last attempt looked it up: a digest.
alter table events add column resolved text;
-- What made an event that no delivery made: a JSON object.
alter table events add column origin text;
-- How many attempts of this life ended before their action began, because the registry did not answer.
alter table events add column failed_lookups integer not null default 0;
-- The notifications of its ends: a JSON list of their ids.
alter table events add column notifications text;
-- What was last deployed and last good of a subject: a JSON object. In a row whose event is zeros: a state of the nodes,
-- such as the count of a budget.
alter table registers add column note text;
