-- What is large or only for people, beside the hot row.
create table payloads (
    event          blob not null primary key,
    headers        text not null,               -- a JSON list of pairs
    headers_digest blob not null,
    body           blob not null,               -- its digest, before it was packed, stands in events.body_digest
    unpacked       integer                      -- lz4, and so many bytes once it is unpacked; null: as it came
) strict;

create table attempts (
    id         integer primary key,
    event      blob    not null,
    life       integer not null,
    attempt    integer not null,
    started_at integer not null,
    ended_at   integer not null,
    outcome    text    not null,
    why        text    not null
) strict;

create index attempts_event on attempts (event);

create table output (
    id      integer primary key,                -- the attempt's
    event   blob    not null,
    life    integer not null,
    attempt integer not null,
    bytes   blob    not null
) strict;

create index output_event on output (event);

create table receipts (
    event   blob    not null primary key,
    status  integer not null,
    headers text    not null,                   -- a JSON list of pairs
    body    blob    not null,
    cut     integer not null,
    digest  blob    not null
) strict;

create table sightings (
    event       blob    not null,
    n           integer not null,
    at          integer not null,
    delivery_id text,
    identity    text    not null,
    primary key (event, n)
) strict, without rowid;

create table duplicates (
    event blob    not null primary key,
    count integer not null                      -- all of them; only the first few are in sightings
) strict, without rowid;
