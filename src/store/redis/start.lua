-- Keeps due events from others who start what is due: their time on the list becomes the end of the hold. Their rows stay
-- as they are, so that a hold that nobody ends is over by itself.
--
-- KEYS: the list.  ARGV: now, the end of the hold, how many, what an event's name begins with.
-- Answers each id with its row.
local held = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[3])) do
  redis.call('ZADD', KEYS[1], 'XX', ARGV[2], id)
  held[#held + 1] = id
  held[#held + 1] = redis.call('GET', ARGV[4] .. id) or ''
end
return held
