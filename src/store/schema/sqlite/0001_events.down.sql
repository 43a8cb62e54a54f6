drop table slots;
drop table registers;
drop table keys;
drop table events;
