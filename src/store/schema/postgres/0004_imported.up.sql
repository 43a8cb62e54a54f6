-- Keys of what was done before there was this store. They belong to no event, and nothing but going down removes them.
create table imported (
    key bytea not null primary key
);
