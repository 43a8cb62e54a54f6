-- Messages of a stream that can never become an event. They belong to no event and have no keys; the oldest make way.
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
