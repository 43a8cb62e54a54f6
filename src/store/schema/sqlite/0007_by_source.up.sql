-- Two sources may read one stream, and each says for itself what it cannot take.
alter table quarantine rename to quarantine_before;
create table quarantine (
    n       integer not null primary key,
    message text    not null,
    source  text    not null,
    subject text    not null,
    at      integer not null,
    why     text    not null,
    bytes   integer not null,
    head    blob    not null,
    unique (source, message)
) strict;
insert into quarantine select n, message, source, subject, at, why, bytes, head from quarantine_before;
drop table quarantine_before;
