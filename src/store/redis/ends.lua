-- Adds the ends of ids that lack them, so many at a time.
--
-- KEYS: every id, the ends.  ARGV: after which id, how many, whether the ends are to be made from the beginning.
-- Answers the last id it came to; nothing once it came to the end.
if ARGV[3] == '1' then redis.call('DEL', KEYS[2]) end
local ids = redis.call('ZRANGE', KEYS[1], ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  redis.call('ZADD', KEYS[2], 0, string.reverse(id))
end
return ids[#ids] or ''
