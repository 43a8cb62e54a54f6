drop table imported;
