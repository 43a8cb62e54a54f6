-- The delivery id that a body came under, where the id has no key of its own; null in what earlier versions wrote. And
-- since when a scope's identities are made as they are: what is older may hold keys that are made otherwise.
alter table keys add column id_digest blob;
alter table scopes add column since integer;
