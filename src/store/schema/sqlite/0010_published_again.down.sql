alter table events drop column published_again;
