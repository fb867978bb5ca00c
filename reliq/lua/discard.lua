-- discard: delete dead letters, each only if it still exists.
--
-- KEYS  1 dead  2 counters  3 index
-- ARGV  1 counter (purged_dead | trimmed), then for each letter: element, id
-- Returns the number deleted
redis.call('HLEN', KEYS[2]) -- wrong types are refused here, before the first write
redis.call('HLEN', KEYS[3])
local removed = 0
for at = 2, #ARGV, 2 do
  if redis.call('ZREM', KEYS[1], ARGV[at]) == 1 then
    redis.call('HDEL', KEYS[3], ARGV[at + 1])
    removed = removed + 1
  end
end
if removed > 0 then redis.call('HINCRBY', KEYS[2], ARGV[1], removed) end
return removed
