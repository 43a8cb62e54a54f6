drop table scopes;
