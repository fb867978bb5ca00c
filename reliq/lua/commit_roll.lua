-- commit_roll: move the first chunk of a committed part into the queue. Safe to repeat and to run concurrently.
-- For chunks with delayed messages, and when memory is full; other chunks use a MULTI (ops.roll), in half the time.
--
-- KEYS  1 staged  2 messages  3 delayed  4 counters  5 index
-- Returns {n moved, n chunks left}
-- A chunk is a RESP array of elements or, if one of them is delayed, a RESP map of delay in ms to element.
-- Removes before it adds. Uses LTRIM because LPOP would copy the chunk into its reply.
-- uses: now, element, index
local staged, messages, delayed, counters, index = unpack(KEYS)
local chunk = redis.call('LINDEX', staged, 0)
if not chunk then return {0, 0} end

local kind, count, at = string.match(chunk, '^([*%%])(%d+)\r\n()')
local function next_string()
  local length, start = string.match(chunk, '^%$(%d+)\r\n()', at)
  at = start + length + 2
  return string.sub(chunk, start, start + length - 1)
end

count = tonumber(count)
local now = now_ms()
local ready, later = {}, {}
for _ = 1, count do -- undecodable chunks and wrong types are refused here, before the first write
  local due = kind == '%' and tonumber(next_string()) or 0
  local element = next_string()
  if due > 0 then later[#later + 1] = {now + due, element} else ready[#ready + 1] = element end
end
redis.call('LLEN', messages)
redis.call('ZCARD', delayed)
redis.call('HLEN', counters)
redis.call('HLEN', index)
redis.call('LTRIM', staged, 1, -1)
for _, item in ipairs(later) do index_add(delayed, index, item[1], id_of(item[2]), item[2]) end
if #ready > 0 then redis.call('LPUSH', messages, unpack(ready)) end
redis.call('HINCRBY', counters, 'enqueued', count)
return {count, redis.call('LLEN', staged)}
