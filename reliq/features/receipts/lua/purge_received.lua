-- purge_received: delete messages in flight, as an operator's purge does.
--
-- KEYS  places, received, receipts
-- ARGV  limit: number
--       limit: messages at most
-- Returns how many
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts = KEYS[14], KEYS[15]
local limit = tonumber(ARGV[1])
local PLACES = 1
-- end of the names
local q = places(PLACES)
check_flights(received, receipts)
local done = {}
for _, name in ipairs(redis.call('ZRANGE', received, 0, limit - 1)) do
  done[#done + 1] = land(received, receipts, name)
end
finish_flights(q, done, 'purged')
return #done
