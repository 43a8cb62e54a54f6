alter table scopes drop column since;
alter table keys drop column id_digest;
