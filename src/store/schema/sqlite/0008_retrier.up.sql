-- Who tries an event again: 0 its sender, which waits for the end; 1 a node, since the sender was told 202.
alter table events add column retrier integer not null default 0;
