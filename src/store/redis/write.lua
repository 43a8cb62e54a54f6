-- Applies conditional writes, one after another, each wholly or not at all. Everything that can fail is checked before
-- the first write, because a script that stops half-way is not rolled back.
--
-- KEYS: epoch, count, turn, hints, writers, the mark of a copy.
-- ARGV: epoch, the least count, the next turn, the number of writes, the writer's name, the count of its last write,
-- how many writers are remembered, '1' to check the mark, then for each write:
--   how many records are expected, and for each its name and its first bytes ('' if it was empty);
--   how many hints, and each;
--   how many commands, and for each the name that must exist ('' if none), how many words, and the words.
local function walk(on_swap, on_command)
  local at = 9
  for swap = 1, tonumber(ARGV[4]) do
    local seen = tonumber(ARGV[at])
    local hints = at + 1 + 2 * seen
    local commands = hints + 1 + tonumber(ARGV[hints])
    local holds = on_swap(swap, at + 1, seen, hints + 1, tonumber(ARGV[hints]))
    at = commands + 1
    for _ = 1, tonumber(ARGV[commands]) do
      local last = at + 1 + tonumber(ARGV[at + 1])
      if holds then
        on_command(ARGV[at], at + 2, last)
      end
      at = last + 1
    end
  end
end

local epoch = redis.call('GET', KEYS[1]) or ''
local count = tonumber(redis.call('GET', KEYS[2]) or '0')
if epoch ~= ARGV[1] or not count or count < tonumber(ARGV[2]) then
  return {'lost', epoch, count or 0}
end

local kinds = {
  APPEND = 'string', FREE = 'string', ZADD = 'zset', ZREM = 'zset', SADD = 'set', RPUSH = 'list', HSET = 'hash',
  HDEL = 'hash', SETRANGE = 'string', NOTE = 'hash', LAY = 'list', DROP = 'set', SHED = 'hash', PACK = 'string',
}
local checked, wrong = {}, nil
local function check(kind, name)
  if kind and not checked[name] then
    checked[name] = true
    local there = redis.call('TYPE', name).ok
    if there ~= 'none' and there ~= kind then
      wrong = wrong or name
    end
  end
end
check('zset', KEYS[5])
walk(function() return true end, function(_, first)
  check(kinds[ARGV[first]], ARGV[first + 1])
  if ARGV[first] == 'LAY' or ARGV[first] == 'PACK' then
    check('hash', ARGV[first + 2])
  end
end)
local turn = tonumber(redis.call('GET', KEYS[3]) or '0')
if wrong or not turn then
  return {'odd', wrong or KEYS[3], 0}
end

-- A writer's last write is lost if a lower count is remembered for it. If none is remembered, its write is lost, or
-- many others have written since.
local wrote = redis.call('ZSCORE', KEYS[5], ARGV[5])
if tonumber(wrote or '0') < tonumber(ARGV[6]) and (wrote or redis.call('ZCARD', KEYS[5]) < tonumber(ARGV[7])) then
  return {'lost', epoch, count}
end
if ARGV[8] == '1' and redis.call('EXISTS', KEYS[6]) == 1 then
  return {'marked', '', count}
end

local special = {}

-- Frees the keys of an event, which are concatenated in a list, if it still owns them.
function special.FREE(first)
  local list, holder, name = ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  local keys = redis.call('GET', list) or ''
  for at = 1, #keys, 32 do
    local key = name .. string.sub(keys, at, at + 31)
    if redis.pcall('GETRANGE', key, 0, 15) == holder then
      redis.call('DEL', key)
    end
  end
  redis.call('DEL', list)
end

-- Counts a sighting, and stores it if it is one of the first.
function special.NOTE(first)
  local name = ARGV[first + 1]
  local n = tonumber(redis.call('HGET', name, 'count') or '0') or 0
  redis.call('HSET', name, 'count', string.format('%.0f', n + 1))
  if n < tonumber(ARGV[first + 2]) then
    redis.call('HSET', name, string.format('%.0f', n), ARGV[first + 3])
  end
end

-- Adds a message to quarantine, if it is not there, and evicts the oldest.
function special.LAY(first)
  local list, hash, message = ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  if redis.call('HEXISTS', hash, message) == 0 then
    redis.call('HSET', hash, message, ARGV[first + 4])
    redis.call('RPUSH', list, message)
    while redis.call('LLEN', list) > tonumber(ARGV[first + 5]) do
      redis.call('HDEL', hash, redis.call('LPOP', list))
    end
  end
end

-- Changes how many bodies need a dictionary, if that is known.
local function count_bodies(counts, dictionary, by)
  local n = tonumber(redis.call('HGET', counts, dictionary) or '')
  if n then
    redis.call('HSET', counts, dictionary, string.format('%.0f', math.max(n + by, 0)))
  end
end

-- Before a body is removed or replaced: its dictionary, if it has one, is needed by one body less.
function special.SHED(first)
  local head = redis.pcall('GETRANGE', ARGV[first + 2], 0, 8)
  if type(head) == 'string' and #head == 9 and string.byte(head) == 4 then
    count_bodies(ARGV[first + 1], string.sub(head, 2), -1)
  end
end

-- After a body is written that is packed with a dictionary: adds its event to those of the dictionary.
function special.PACK(first)
  redis.call('APPEND', ARGV[first + 1], ARGV[first + 4])
  count_bodies(ARGV[first + 2], ARGV[first + 3], 1)
end

-- Removes a name from a set, if none of its lists exists any more.
function special.DROP(first, last)
  for at = first + 3, last do
    if redis.call('EXISTS', ARGV[at]) == 1 then
      return
    end
  end
  redis.call('SREM', ARGV[first + 1], ARGV[first + 2])
end

local written, hinted, any = {}, {}, false
walk(function(swap, first, seen, hints, many)
  local holds = true
  for n = 0, seen - 1 do
    local expected = ARGV[first + 2 * n + 1]
    local last = math.max(#expected - 1, 0)
    holds = holds and redis.pcall('GETRANGE', ARGV[first + 2 * n], 0, last) == expected
  end
  written[swap] = holds and '1' or '0'
  if holds then
    any = true
    for n = hints, hints + many - 1 do
      hinted[ARGV[n]] = true
    end
  end
  return holds
end, function(needs, first, last)
  if needs == '' or redis.call('EXISTS', needs) == 1 then
    local done = special[ARGV[first]]
    if done then
      done(first, last)
    else
      redis.call(unpack(ARGV, first, last))
    end
  end
end)

if any then
  count = redis.call('INCR', KEYS[2])
  if redis.call('ZADD', KEYS[5], count, ARGV[5]) == 1 then
    redis.call('ZREMRANGEBYRANK', KEYS[5], 0, -1 - tonumber(ARGV[7]))
  end
  if turn < tonumber(ARGV[3]) then
    redis.call('SET', KEYS[3], ARGV[3])
  end
  for hint in pairs(hinted) do
    redis.pcall('PUBLISH', KEYS[4], hint) -- only a hint: without the permission to publish, the write still succeeds
  end
end
return {'written', table.concat(written), count}
