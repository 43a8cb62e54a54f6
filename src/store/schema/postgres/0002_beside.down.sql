drop table duplicates;
drop table sightings;
drop table receipts;
drop table output;
drop table attempts;
drop table payloads;
