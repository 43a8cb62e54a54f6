alter table quarantine rename to quarantine_before;
create table quarantine (
    n       integer not null primary key,
    message text    not null unique,
    source  text    not null,
    subject text    not null,
    at      integer not null,
    why     text    not null,
    bytes   integer not null,
    head    blob    not null
) strict;
insert into quarantine select n, message, source, subject, at, why, bytes, head from quarantine_before
    where n in (select min(n) from quarantine_before group by message);
drop table quarantine_before;
