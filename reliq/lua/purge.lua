-- purge: remove ready and delayed messages for good, a bounded number a call.
--
-- KEYS  1 messages  2 delayed  3 counters  4 index
-- ARGV  1 n at most
-- Returns the number removed; 0 = nothing is left
-- uses: index
local messages, delayed, counters, index = unpack(KEYS)
local limit = tonumber(ARGV[1])
local removed = #(redis.call('RPOP', messages, limit) or {})
local later = removed < limit and redis.call('ZRANGE', delayed, 0, limit - removed - 1) or {}
if #later > 0 then
  local ids = {}
  for at, element in ipairs(later) do ids[at] = id_of(element) end
  redis.call('ZREM', delayed, unpack(later))
  redis.call('HDEL', index, unpack(ids))
  removed = removed + #later
end
if removed > 0 then redis.call('HINCRBY', counters, 'purged', removed) end
return removed
