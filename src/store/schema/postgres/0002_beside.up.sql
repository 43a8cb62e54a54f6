-- What is large or only for people, beside the hot row.
create table payloads (
    event          uuid  not null primary key,
    headers        text  not null,               -- a JSON list of pairs
    headers_digest bytea not null,
    body           bytea not null,               -- its digest, before it was packed, stands in events.body_digest
    unpacked       bigint                        -- lz4, and so many bytes once it is unpacked; null: as it came
);
alter table payloads alter column body set storage external; -- packed already, where that helps

create table attempts (
    id         bigint  not null primary key generated always as identity,
    event      uuid    not null,
    life       integer not null,
    attempt    integer not null,
    started_at bigint  not null,
    ended_at   bigint  not null,
    outcome    text    not null,
    why        text    not null
);

create index attempts_event on attempts (event);

create table output (
    id      bigint  not null primary key,        -- the attempt's
    event   uuid    not null,
    life    integer not null,
    attempt integer not null,
    bytes   bytea   not null
);

create index output_event on output (event);

create table receipts (
    event   uuid    not null primary key,
    status  integer not null,
    headers text    not null,                    -- a JSON list of pairs
    body    bytea   not null,
    cut     boolean not null,
    digest  bytea   not null
);

create table sightings (
    event       uuid    not null,
    n           integer not null,
    at          bigint  not null,
    delivery_id text,
    identity    text    not null,
    primary key (event, n)
);

create table duplicates (
    event uuid   not null primary key,
    count bigint not null                        -- all of them; only the first few are in sightings
) with (fillfactor = 70);
