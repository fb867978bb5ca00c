-- Check whether a queue has room for `more` messages with `bytes()` bytes. Returns nil if it has; otherwise the present
-- amount, the limit and the unit. Bytes are measured by MEMORY USAGE: exact while a list or zset has at most 100 blocks,
-- else estimated from the latest 100. A counter of bytes is not possible: BLMOVE moves messages without a script.
local function refused(q, delayed, more, bytes)
  local length = redis.call('LLEN', q.messages) + redis.call('ZCARD', delayed)
  local limits = redis.call('HMGET', q.config, 'max_length', 'max_bytes')
  local most, most_bytes = tonumber(limits[1]), tonumber(limits[2])
  if most then
    length = length + redis.call('LLEN', q.high) + redis.call('LLEN', q.low) + redis.call('ZCARD', q.waiting)
      + redis.call('LLEN', q.next_round)
    if length + more > most then return length, most, 'messages' end
  end
  if not most_bytes then return end
  local used = 0
  for _, key in ipairs({q.messages, q.high, q.low, q.waiting, q.next_round, delayed}) do
    used = used + (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 100) or 0)
  end
  if used + bytes() > most_bytes then return used, most_bytes, 'bytes' end
end
