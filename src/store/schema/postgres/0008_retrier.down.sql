alter table events drop column retrier cascade; -- with the views that show its fields as columns
