-- Earlier bodies of a source, with which its others are packed. A body that is packed so cannot be read without its
-- dictionary: the reference keeps that, and each is written twice.
create table dictionaries (
    id      bigint  not null primary key,       -- the first 8 bytes of its digest
    source  text    not null,
    event   uuid    not null,                   -- the event whose body it was
    arrived bigint  not null,                   -- when that event arrived: its age counts from then
    retired boolean not null,                   -- no more bodies are packed with it
    bytes   bytea   not null,
    digest  bytea   not null                    -- of source and bytes
);
-- What is each source's, in the order of age.
create index dictionaries_source on dictionaries (source, retired, arrived);
-- Which are bodies of an event that is to be forgotten.
create index dictionaries_event on dictionaries (event);
create table dictionary_copies (
    id     bigint not null primary key,
    bytes  bytea  not null
);
-- A body that is packed with a dictionary is here, and `body` is null: an earlier version cannot read it, and does not take
-- it for a damaged one.
alter table payloads alter column body drop not null;
alter table payloads add column packed bytea;
alter table payloads alter column packed set storage external; -- packed already
alter table payloads add column dictionary bigint;
alter table payloads add constraint payloads_dictionary_fkey foreign key (dictionary) references dictionaries (id) not valid;
-- Which bodies need a dictionary. Where there are bodies, it is built while nodes work.
do $$ begin
    if not exists (select from payloads) then
        create index payloads_dictionary on payloads (dictionary) where dictionary is not null;
    end if;
end $$;
