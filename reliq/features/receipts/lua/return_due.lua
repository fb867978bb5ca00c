-- return_due: make messages visible again whose time in flight is over.
--
-- KEYS  places, received, receipts, early
-- ARGV  limit
--       limit: messages at most
-- Returns {n returned, ms until the next is due or -1, groups: some of `early`}
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local received, receipts, early = KEYS[14], KEYS[15], KEYS[16]
local limit = ARGV[1]
local PLACES = 1
-- end of the names
local EARLY_MOST = 10
local q = places(PLACES)
check_flights(received, receipts, early)
local now = now_ms()
local landed = {}
for _, field in ipairs(redis.call('ZRANGEBYSCORE', received, '-inf', now, 'LIMIT', 0, limit)) do
  local element, turn = land(received, receipts, field)
  if element then landed[#landed + 1] = {element, turn} end
end
make_visible(q, early, landed)
local first = redis.call('ZRANGE', received, 0, 0, 'WITHSCORES')
local waits = first[2] and math.max(0, math.floor(first[2]) - now) or -1
return {#landed, waits, redis.call('SRANDMEMBER', early, EARLY_MOST)}
