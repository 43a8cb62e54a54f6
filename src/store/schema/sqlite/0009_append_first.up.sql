-- A claim writes only at the ends of tables. Which event holds a key, and what an event is called, is looked up in an index
-- that is made in order behind the claims: what is fresh is appended, and merged into the index in small ranges.
--
-- What the indexes of `events` that are left answer:
--   events_due, events_due_part   what is due on a route, or for one of its receivers?
--   events_parked                 what waits for this group's slot, in which order?
--   events_dead                   what is dead? (few, so that a claim seldom writes it)
--   events_ended                  when did the last event end, and which ended first?
--   events_keep, events_body      whose event, or whose body, may be forgotten?
--   events_source                 which events does a source have, the newest first?
--   events_superseded             whose place did an event take?
--
-- The keys of an event, beside it: they are read by it, and removed with it. Aliases too, so that no row grows with them.
-- Whole, because the layout before this one compares all 32 bytes: with half of them `migrate down` could not leave a store
-- in which nothing acts again.
alter table keys rename to keys_before;
create table keys (
    key       blob    not null,
    event     blob    not null,
    identity  text    not null,
    alias     integer not null,                 -- 1: left by a later delivery that was matched through its register
    id_digest blob,                             -- of the delivery id, where the id has no key of its own
    primary key (event, key)
) strict, without rowid;
-- A cell of another type is damaged, and cannot be written again.
insert or ignore into keys (key, event, identity, alias, id_digest)
    select key, event, cast(identity as text), case typeof(alias) when 'integer' then alias else 0 end,
        case typeof(id_digest) when 'blob' then id_digest end
    from keys_before where typeof(key) = 'blob' and typeof(event) = 'blob' order by event, key;
-- Which event may have this key? By the first 16 bytes of the key. `keys` says whether it still does.
create table key_index (
    key   blob not null,
    event blob not null,
    primary key (key, event)
) strict, without rowid;
insert or ignore into key_index (key, event)
    select substr(key, 1, 16), event from keys_before where typeof(key) = 'blob' and typeof(event) = 'blob' order by key;
drop table keys_before;
create table fresh_keys (
    n     integer not null primary key,
    key   blob    not null,
    event blob    not null,
    gone  integer not null                      -- 1: the event was removed, and its entry is to be
) strict;
-- Which events may be called so? By what people know of an event: its delivery id, and the last eight digits of its id.
create table name_index (
    name  blob not null,                        -- the last 16 characters of the delivery id; the last 4 bytes of the id
    event blob not null,
    primary key (name, event)
) strict, without rowid;
insert or ignore into name_index (name, event)
    select name, id from (
        select cast(substr(delivery_id, -16) as blob) as name, id from events where delivery_id is not null
        union all select substr(id, 13), id from events
    ) order by name, id;
create table fresh_names (
    n     integer not null primary key,
    name  blob    not null,
    event blob    not null,
    gone  integer not null
) strict;
drop index events_delivery;
drop index events_id_end;
