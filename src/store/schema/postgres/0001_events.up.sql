-- What is known of an event while it lives: small, since every step rewrites it. Times are microseconds since 1970, UTC.
create table events (
    id            uuid     not null primary key, -- a UUIDv7
    revision      bigint   not null,             -- the fence: every write names the one it replaces
    version       bigint   not null,             -- new at every write, so that nobody takes one write for another
    source        text     not null,
    route         text     not null,
    part          integer  not null,
    delivery_id   text,
    fields        json     not null,             -- declared fields; the views events_<source> have them as columns
    state         text     not null,             -- waiting, running, done, dead
    cause         text,                          -- of done: acted, recorded, superseded; of dead: failed, rejected, …
    superseded_by uuid,
    wake_at       bigint,                        -- waiting: due; running: the end of the lease; null: parked, or over
    received_at   bigint   not null,
    ended_at      bigint,
    keep_from     bigint,                        -- over, and not its subject's current event, since then
    node          text,
    life          integer  not null,
    attempt       integer  not null,
    doubts        integer  not null,
    blocks_done   bigint   not null,
    passed        smallint not null,             -- 0: in the queue; 1: aside, its route is gone; 2: its route came back
    grp           bytea,
    turn          bigint   not null,
    subject       bytea,
    value         bytea,
    ord           bigint,
    body          boolean  not null,             -- body, receipt and output are still kept
    body_digest   bytea    not null,
    digest        bytea    not null              -- of all that never changes by itself
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

create index events_due on events (state, source, route, wake_at) where wake_at is not null;
create index events_parked on events (grp, turn) where state = 'waiting' and wake_at is null;
create index events_ended on events (ended_at) where ended_at is not null;
create index events_body on events (source, ended_at) where body;
create index events_keep on events (source, keep_from) where keep_from is not null;
create index events_open on events (state) where ended_at is null;
create index events_dead on events (id) where state = 'dead';
create index events_delivery on events (delivery_id) where delivery_id is not null;

create table keys (
    key      bytea   not null primary key,
    event    uuid    not null,
    identity text    not null,
    alias    boolean not null                    -- left by a later delivery that was matched through its register
) with (autovacuum_vacuum_scale_factor = 0.02);

create index keys_event on keys (event);

create table registers (
    key     bytea   not null primary key,
    version bigint  not null,
    value   bytea   not null,
    ord     bigint,
    strict  boolean not null,                    -- set by a replay; an equal order is stale too
    event   uuid    not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

create table slots (
    grp     bytea  not null primary key,
    version bigint not null,
    event   uuid   not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Places in the queues, a block at a time: each number stands for as many turns as it is apart from the next.
create sequence turns as bigint increment by 16384 start with 16384 minvalue 0 no cycle;
