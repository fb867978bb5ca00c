-- keep_received: keep messages of a micro-batch of Spark in flight, those that still are.
--
-- KEYS  received, receipts, attempt
-- ARGV  visible: number, first: number, limit: number
--       visible: ms from now on, also for their list
--       first, limit: which of the list
-- Returns {entries of the list that were looked at, names of those in flight}; the others leave the list. A message whose
--         time is over stays in flight if nobody has made it visible yet.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights, full
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, attempt = KEYS[1], KEYS[2], KEYS[3]
local visible, first, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
-- end of the names
redis.call('ZCARD', received) -- wrong types are refused here, before the first write
redis.call('HLEN', receipts)
pass_when_full(receipts)
local now = now_ms()
local entries = redis.call('LRANGE', attempt, first, first + limit - 1)
local names = marked_names(entries)
local records = records_of(receipts, names)
local there, scored = {}, {}
for at, name in ipairs(names) do
  local field = field_of(records, name)
  if field then
    there[#there + 1] = name
    scored[#scored + 1], scored[#scored + 2] = string.format('%.0f', now + visible), field
  else
    redis.call('LREM', attempt, 1, entries[at])
  end
end
if #scored > 0 then redis.call('ZADD', received, 'XX', unpack(scored)) end
redis.call('PEXPIRE', attempt, visible)
return {#names, there}
