-- receive_again: repeat a receive: the same messages, if all are still in flight; their visibility begins anew.
--
-- KEYS  received, receipts, attempt
-- ARGV  visible: number
--       visible: ms
-- Returns the elements; none if one of them was settled, has become visible, was received by another call, or has another
--         time than the list says
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights, full
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, attempt = KEYS[1], KEYS[2], KEYS[3]
local visible = tonumber(ARGV[1])
-- end of the names
redis.call('ZCARD', received) -- wrong types are refused here, before the first write
redis.call('HLEN', receipts)
pass_when_full(receipts)
local now = now_ms()
local until_ms = string.format('%.0f', now + visible)
local entries = redis.call('LRANGE', attempt, 0, -1)
local names = marked_names(entries)
local records = records_of(receipts, names)
local elements, scored = {}, {}
for at, name in ipairs(names) do
  local field = field_of(records, name)
  local before = field and tonumber(redis.call('ZSCORE', received, field) or nil)
  local noted = tonumber(string.match(entries[at], '^%d+')) or before -- an earlier version noted no time
  if not before or before <= now or before ~= noted then return {} end
  scored[#scored + 1], scored[#scored + 2] = until_ms, field
  elements[at] = string.sub(records[field], #FIRST_TURN + 1)
end
for at, name in ipairs(names) do redis.call('LSET', attempt, at - 1, until_ms .. ' ' .. name) end
if #scored > 0 then redis.call('ZADD', received, unpack(scored)) end
return elements
