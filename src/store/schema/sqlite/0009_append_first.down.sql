create index events_id_end on events (substr(id, 13));
create index events_delivery on events (delivery_id) where delivery_id is not null;
drop table fresh_names;
drop table name_index;
drop table fresh_keys;
drop table key_index;
alter table keys rename to keys_before;
create table keys (
    key      blob    not null primary key,
    event    blob    not null,
    identity text    not null,
    alias    integer not null                   -- 1: left by a later delivery that was matched through its register
) strict, without rowid;
create index keys_event on keys (event);
alter table keys add column id_digest blob;
insert into keys (key, event, identity, alias, id_digest)
    select key, event, identity, alias, id_digest from keys_before order by key;
drop table keys_before;
