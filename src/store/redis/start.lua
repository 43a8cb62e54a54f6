-- Reserves due events for one node that starts them: their time on the list becomes the end of the reservation. Their
-- rows are unchanged, so an abandoned reservation simply expires.
--
-- KEYS: the list.  ARGV: now, the end of the reservation, how many, the prefix of an event's name.
-- Returns each id with its row.
local held = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[3])) do
  redis.call('ZADD', KEYS[1], 'XX', ARGV[2], id)
  held[#held + 1] = id
  held[#held + 1] = redis.call('GET', ARGV[4] .. id) or ''
end
return held
