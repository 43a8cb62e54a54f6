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
-- Damage may have left a key with two events: the older one acted first.
insert or ignore into keys (key, event, identity, alias, id_digest)
    select key, event, cast(identity as text), case typeof(alias) when 'integer' then alias else 0 end,
        case typeof(id_digest) when 'blob' then id_digest end
    from keys_before where typeof(key) = 'blob' and typeof(event) = 'blob' order by key, event;
drop table keys_before;
