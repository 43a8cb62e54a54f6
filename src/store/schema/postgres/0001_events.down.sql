drop sequence turns;
drop table slots;
drop table registers;
drop table keys;
drop table events cascade; -- with the views that show its fields as columns
