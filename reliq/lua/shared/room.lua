local SAMPLES = 100

-- The bytes that Redis' allocator (jemalloc) uses for a value of a hash: it has four sizes between two powers of two.
local function bytes_allocated(size)
  local _, exponent = math.frexp(size)
  local step = 2 ^ (exponent - 3)
  return math.ceil((size + 10) / step) * step + 80
end

-- The bytes of the bodies that are apart from their elements in a list or zset, estimated from the latest hundred; in
-- `waiting` from the first ones of its lines.
local function bytes_apart(q, key)
  local is_list = redis.call('TYPE', key).ok == 'list'
  local length = redis.call(is_list and 'LLEN' or 'ZCARD', key)
  local some = redis.call(is_list and 'LRANGE' or 'ZRANGE', key, 0, SAMPLES - 1)
  local apart = 0
  for _, element in ipairs(some) do
    if key == q.waiting then element = element_in_line(element) end
    if body_of(element) then apart = apart + bytes_allocated(size_of(element) - #element) end
  end
  return #some > 0 and apart * length / #some or 0
end

-- Check whether a queue has room for `more` messages with `bytes()` bytes; there is always room for none. Returns nil if it
-- has; otherwise the present amount, the limit and the unit. Bytes are measured by MEMORY USAGE: exact while a list or zset has at most 100 blocks,
-- else estimated from the latest 100. A counter of bytes is not possible: BLMOVE moves messages without a script.
local function refused(q, delayed, more, bytes)
  local length = redis.call('LLEN', q.messages) + redis.call('ZCARD', delayed) -- refuses wrong types, with limits or without
  local limits = redis.call('HMGET', q.config, 'max_length', 'max_bytes')
  local most, most_bytes = tonumber(limits[1]), tonumber(limits[2])
  if most and more > 0 then
    length = length + redis.call('LLEN', q.high) + redis.call('LLEN', q.low) + redis.call('ZCARD', q.waiting)
      + redis.call('LLEN', q.next_round) - blank_places(q)
    if length + more > most then return length, most, 'messages' end
  end
  local added = most_bytes and bytes() or 0
  if added <= 0 then return end
  local used = 0
  for _, key in ipairs({q.messages, q.high, q.low, q.waiting, q.next_round, delayed}) do
    used = used + (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', SAMPLES) or 0)
    if q.apart then used = used + bytes_apart(q, key) end
  end
  if used + added > most_bytes then return used, most_bytes, 'bytes' end
end
