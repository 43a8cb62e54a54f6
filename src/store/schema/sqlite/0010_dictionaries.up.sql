-- Earlier bodies of a source, with which its others are packed. A body that is packed so cannot be read without its
-- dictionary: the reference keeps that, and each is written twice, in tables that share no page.
create table dictionaries (
    id      integer not null primary key,       -- the first 8 bytes of its digest
    source  text    not null,
    event   blob    not null,                   -- the event whose body it was
    arrived integer not null,                   -- when that event arrived: its age counts from then
    retired integer not null,                   -- 1: no more bodies are packed with it
    bytes   blob    not null,
    digest  blob    not null                    -- of source and bytes
) strict;
-- What is each source's, in the order of age.
create index dictionaries_source on dictionaries (source, retired, arrived);
-- Which are bodies of an event that is to be forgotten.
create index dictionaries_event on dictionaries (event);
create table dictionary_copies (
    id     integer not null primary key,
    bytes  blob    not null
) strict;
alter table payloads add column dictionary integer references dictionaries (id);
-- Which bodies need a dictionary.
create index payloads_dictionary on payloads (dictionary) where dictionary is not null;
