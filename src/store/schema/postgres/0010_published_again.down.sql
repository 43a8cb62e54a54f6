alter table events drop column published_again cascade; -- with the views that show it; they are made anew
