-- promote: move due messages from delayed to the head of messages, those due first going first.
--
-- KEYS  1 messages  2 delayed  3 counters  4 index
-- ARGV  1 n at most
-- Returns {n promoted, ms until the next is due or -1}
-- uses: now, index
local messages, delayed, counters, index = unpack(KEYS)
local now = now_ms()
redis.call('LLEN', messages) -- a wrong type is refused here, before the first write
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(' .. string.format('%.0f', now + 1), 'LIMIT', 0, ARGV[1])
if #due > 0 then
  local ids = {}
  for at, element in ipairs(due) do ids[at] = id_of(element) end
  redis.call('ZREM', delayed, unpack(due))
  redis.call('LPUSH', messages, unpack(due))
  redis.call('HDEL', index, unpack(ids))
  redis.call('HINCRBY', counters, 'promoted', #due)
end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
return {#due, first[2] and math.max(0, math.floor(first[2]) - now) or -1}
