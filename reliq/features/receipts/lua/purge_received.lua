-- purge_received: delete messages in flight, of a purge or by a cancellation.
--
-- KEYS  places, received, receipts, early, call?
--       call: has the answer of a call that is repeated
-- ARGV  limit: number, ids...
--       limit: messages at most
--       ids: those to cancel; none: all are purged
-- Returns how many
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, calls, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, early, call = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local limit = tonumber(ARGV[1])
local PLACES, IDS = 1, 2
-- end of the names
local q = places(PLACES)
local before = answer_before(call)
if before then return tonumber(before) end
check_flights(received, receipts, early)
local done = {}
local fields = {unpack(ARGV, IDS)}
local counter = #fields > 0 and 'cancelled' or 'purged'
if #fields == 0 then fields = redis.call('ZRANGE', received, 0, limit - 1) end
for _, field in ipairs(fields) do
  local element, turn = land(received, receipts, field)
  if element then done[#done + 1] = {element, turn} end
end
finish_flights(q, early, done, counter)
if #done > 0 then answer_with(call, #done) end
return #done
