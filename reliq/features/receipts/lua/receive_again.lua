-- receive_again: repeat a receive: the same messages, if all are still in flight; their visibility begins anew.
--
-- KEYS  received, receipts, attempt
-- ARGV  visible: number
--       visible: ms
-- Returns the elements; none if one of them was settled or has become visible
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, attempt = KEYS[1], KEYS[2], KEYS[3]
local visible = tonumber(ARGV[1])
-- end of the names
redis.call('ZCARD', received) -- wrong types are refused here, before the first write
redis.call('HLEN', receipts)
local now = now_ms()
local fields = redis.call('LRANGE', attempt, 0, -1)
if #fields == 0 then return {} end
for _, field in ipairs(fields) do
  local until_ms = tonumber(redis.call('ZSCORE', received, field) or nil)
  if not until_ms or until_ms <= now then return {} end
end
local elements = redis.call('HMGET', receipts, unpack(fields))
for at, field in ipairs(fields) do
  redis.call('ZADD', received, string.format('%.0f', now + visible), field)
  elements[at] = string.sub(elements[at], 17)
end
return elements
