-- For people who look: the newest of one source, and whose place an event took. Neither changes as an event lives.
create index events_source on events (source);
create index events_superseded on events (superseded_by) where superseded_by is not null;
