-- What each scope's identities were made of, so that a changed recipe is noticed before it makes old events new.
create table scopes (
    scope text not null primary key,
    once  text not null
);
