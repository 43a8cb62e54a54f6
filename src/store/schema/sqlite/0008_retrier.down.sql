alter table events drop column retrier;
