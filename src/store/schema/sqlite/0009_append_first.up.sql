-- A claim writes only at the ends of tables. Which event holds a key, and what an event is called, is looked up in an index
-- that is made in order behind the claims: what is fresh is appended, and merged into the index in small ranges.
--
-- The keys of an event, beside it: they are read by it, and removed with it.
alter table keys rename to keys_before;
create table keys (
    key       blob    not null,
    event     blob    not null,
    identity  text    not null,
    alias     integer not null,                 -- 1: left by a later delivery that was matched through its register
    id_digest blob,                             -- of the delivery id, where the id has no key of its own
    primary key (event, key)
) strict, without rowid;
insert into keys (key, event, identity, alias, id_digest)
    select key, event, identity, alias, id_digest from keys_before order by event, key;
-- The event that a key belongs to: by the first 16 bytes of the key. `keys` says whether it still does.
create table key_index (
    key   blob not null,
    event blob not null,
    primary key (key, event)
) strict, without rowid;
insert into key_index (key, event) select substr(key, 1, 16), event from keys_before order by key;
drop table keys_before;
create table fresh_keys (
    n     integer not null primary key,
    key   blob    not null,
    event blob    not null,
    gone  integer not null                      -- 1: the event was removed, and its entry is to be
) strict;
-- An event by what people know of it: its delivery id, and the last eight digits of its id.
create table name_index (
    name  blob not null,                        -- its text, at most the first 64 characters
    event blob not null,
    primary key (name, event)
) strict, without rowid;
insert into name_index (name, event)
    select name, id from (
        select cast(substr(delivery_id, 1, 64) as blob) as name, id from events where delivery_id is not null
        union all select cast(lower(hex(substr(id, 13))) as blob), id from events
    ) order by name, id;
create table fresh_names (
    n     integer not null primary key,
    name  blob    not null,
    event blob    not null,
    gone  integer not null
) strict;
drop index events_delivery;
drop index events_id_end;
