-- Messages of a stream that can never become an event. They belong to no event and have no keys; the oldest make way.
create table quarantine (
    n       bigint not null generated always as identity primary key,
    message text   not null unique,
    source  text   not null,
    subject text   not null,
    at      bigint not null,
    why     text   not null,
    bytes   bigint not null,
    head    bytea  not null
);
