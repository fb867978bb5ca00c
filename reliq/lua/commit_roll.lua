-- commit_roll: move the first chunk of a committed part into the queue. Safe to repeat, by anybody, any number at once.
--
-- KEYS  1 staged  2 messages  3 delayed  4 counters  5 index
-- Returns {n moved, n chunks left}
-- A chunk is a MessagePack array of elements, or where one of them is delayed, of {delay ms, element} for each.
-- Removes before it adds. LTRIM, because LPOP would answer the chunk and copy it once more.
-- uses: now, index
local staged, messages, delayed, counters, index = unpack(KEYS)
local chunk = redis.call('LINDEX', staged, 0)
if not chunk then return {0, 0} end
local items = cmsgpack.unpack(chunk) -- what does not decode, and wrong types, are refused here, before the first write
redis.call('LLEN', messages)
redis.call('ZCARD', delayed)
redis.call('LTRIM', staged, 1, -1)
local ready = items
if type(items[1]) == 'table' then
  local now = now_ms()
  ready = {}
  for _, item in ipairs(items) do
    local delay, element = item[1], item[2]
    if delay > 0 then
      file(delayed, index, now + delay, id_of(element), element)
    else
      ready[#ready + 1] = element
    end
  end
end
if #ready > 0 then redis.call('LPUSH', messages, unpack(ready)) end
redis.call('HINCRBY', counters, 'enqueued', #items)
return {#items, redis.call('LLEN', staged)}
