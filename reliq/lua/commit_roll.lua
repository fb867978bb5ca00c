-- commit_roll: move the first chunk of a committed part into the queue. Safe to repeat, by anybody, any number at once.
--
-- KEYS  1 staged  2 messages  3 delayed  4 counters  5 index
-- Returns {n moved, n chunks left}
-- A chunk is a MessagePack array of strings; its items are elements, or {delay ms, element}. Removes before it adds.
-- uses: now, index
local staged, messages, delayed, counters, index = unpack(KEYS)
local chunk = redis.call('LINDEX', staged, 0)
if not chunk then return {0, 0} end
local items = cmsgpack.unpack(chunk) -- what does not decode, and wrong types, are refused here, before the first write
redis.call('LLEN', messages)
redis.call('ZCARD', delayed)
redis.call('LPOP', staged)
local ready, now = {}, now_ms()
for _, item in ipairs(items) do
  if type(item) == 'table' then
    file(delayed, index, now + item[1], id_of(item[2]), item[2])
  else
    ready[#ready + 1] = item
  end
end
if #ready > 0 then redis.call('LPUSH', messages, unpack(ready)) end
redis.call('HINCRBY', counters, 'enqueued', #items)
return {#items, redis.call('LLEN', staged)}
