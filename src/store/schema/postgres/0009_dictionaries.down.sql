-- Bodies that need a dictionary were packed without one before this.
drop index if exists payloads_dictionary;
alter table payloads drop constraint payloads_dictionary_fkey;
alter table payloads drop column dictionary;
alter table payloads drop column packed;
alter table payloads alter column body set not null;
drop table dictionary_copies;
drop table dictionaries;
