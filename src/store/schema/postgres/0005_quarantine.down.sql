drop table quarantine;
