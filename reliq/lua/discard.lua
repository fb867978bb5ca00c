-- discard: delete dead letters, each only if it still exists.
--
-- KEYS  1 dead  2 counters  3 index  4 bodies
-- ARGV  1 counter (purged_dead | trimmed), then for each letter: element, id, reference of its body ('' = not apart)
-- Returns the number deleted
local dead, counters, index, bodies = unpack(KEYS)
for _, hash in ipairs({counters, index, bodies}) do redis.call('HLEN', hash) end -- wrong types are refused here
local removed = 0
for at = 2, #ARGV, 3 do
  if redis.call('ZREM', dead, ARGV[at]) == 1 then
    redis.call('HDEL', index, ARGV[at + 1])
    if ARGV[at + 2] ~= '' then redis.call('HDEL', bodies, ARGV[at + 2]) end
    removed = removed + 1
  end
end
if removed > 0 then redis.call('HINCRBY', counters, ARGV[1], removed) end
return removed
