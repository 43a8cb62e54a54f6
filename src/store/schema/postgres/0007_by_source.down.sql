delete from quarantine later using quarantine first where first.message = later.message and first.n < later.n;
alter table quarantine
    drop constraint quarantine_source_message_key,
    add constraint quarantine_message_key unique (message);
