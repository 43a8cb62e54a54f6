-- Bodies that need a dictionary were packed anew before this.
drop index payloads_dictionary;
alter table payloads rename column length to unpacked;
alter table payloads drop constraint payloads_dictionary_fkey;
alter table payloads drop column dictionary;
drop table dictionary_copies;
drop table dictionaries;
