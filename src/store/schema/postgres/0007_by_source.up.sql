-- Two sources may read one stream, and each says for itself what it cannot take.
alter table quarantine
    drop constraint quarantine_message_key,
    add constraint quarantine_source_message_key unique (source, message);
