-- Adds missing entries to the index of id suffixes, a limited number at a time.
--
-- KEYS: all ids, the index.  ARGV: after which id, how many, '1' to rebuild the index from scratch.
-- Returns the last id it reached; '' at the end.
if ARGV[3] == '1' then redis.call('DEL', KEYS[2]) end
local ids = redis.call('ZRANGE', KEYS[1], ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  redis.call('ZADD', KEYS[2], 0, string.reverse(id))
end
return ids[#ids] or ''
