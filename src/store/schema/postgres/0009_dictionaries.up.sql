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
alter table payloads add column dictionary bigint;
alter table payloads add constraint payloads_dictionary_fkey foreign key (dictionary) references dictionaries (id) not valid;
-- Earlier versions would take what they cannot unpack for damaged. So they find no column of the old name, and stop.
alter table payloads rename column unpacked to length;
-- Which bodies need a dictionary.
create index payloads_dictionary on payloads (dictionary) where dictionary is not null;
