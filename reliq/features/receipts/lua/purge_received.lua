-- purge_received: delete messages in flight, of a purge or by a cancellation.
--
-- KEYS  places, received, receipts
-- ARGV  limit: number, ids...
--       limit: messages at most
--       ids: those to cancel; none: all are purged
-- Returns how many
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts = KEYS[14], KEYS[15]
local limit = tonumber(ARGV[1])
local PLACES, IDS = 1, 2
-- end of the names
local q = places(PLACES)
check_flights(received, receipts)
local done = {}
local fields = {unpack(ARGV, IDS)}
local counter = #fields > 0 and 'cancelled' or 'purged'
if #fields == 0 then fields = redis.call('ZRANGE', received, 0, limit - 1) end
for _, field in ipairs(fields) do
  done[#done + 1] = land(received, receipts, field)
end
finish_flights(q, done, counter)
return #done
