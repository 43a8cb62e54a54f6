-- What is known of an event while it lives: small, since every step rewrites it. Times are microseconds since 1970, UTC.
create table events (
    id            blob    not null primary key, -- a UUIDv7
    revision      integer not null,             -- the fence: every write names the one it replaces
    source        text    not null,
    route         text    not null,
    part          integer not null,
    delivery_id   text,
    fields        text    not null,             -- a JSON object; declared fields are also columns by their name
    state         text    not null,             -- waiting, running, done, dead
    cause         text,                         -- of done: acted, recorded, superseded; of dead: failed, rejected, …
    superseded_by blob,
    wake_at       integer,                      -- waiting: due; running: the end of the lease; null: parked, or over
    received_at   integer not null,
    ended_at      integer,
    keep_from     integer,                      -- over, and not its subject's current event, since then
    node          text,
    life          integer not null,
    attempt       integer not null,
    doubts        integer not null,
    blocks_done   integer not null,
    passed        integer not null,             -- 0: in the queue; 1: aside, its route is gone; 2: its route came back
    grp           blob,
    turn          integer not null,
    subject       blob,
    value         blob,
    ord           integer,
    body          integer not null,             -- 1: body, receipt and output are still kept
    body_digest   blob    not null,
    digest        blob    not null              -- of all that never changes by itself
) strict, without rowid;

create index events_due on events (state, source, route, wake_at) where wake_at is not null;
create index events_parked on events (grp, turn) where state = 'waiting' and wake_at is null;
create index events_ended on events (ended_at);
create index events_body on events (source, ended_at) where body = 1;
create index events_keep on events (source, keep_from) where keep_from is not null;
create index events_dead on events (state) where state = 'dead';
create index events_delivery on events (delivery_id) where delivery_id is not null;

create table keys (
    key      blob    not null primary key,
    event    blob    not null,
    identity text    not null,
    alias    integer not null                   -- 1: left by a later delivery that was matched through its register
) strict, without rowid;

create index keys_event on keys (event);

create table registers (
    key    blob    not null primary key,
    value  blob    not null,
    ord    integer,
    strict integer not null,                    -- 1: set by a replay; an equal order is stale too
    event  blob    not null
) strict, without rowid;

create table slots (
    grp   blob not null primary key,
    event blob not null
) strict, without rowid;
