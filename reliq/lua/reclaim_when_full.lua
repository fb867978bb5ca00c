-- reclaim_when_full: take back the messages of a dead consumer when memory is full. Does the same as the monitor's transaction, but
-- removes first: over maxmemory Redis refuses a MULTI that contains an LPUSH.
--
-- KEYS  1-13 places  14 processing  15 lease  16 dead  17 index
-- ARGV  1 the deadline that the monitor saw ('' = none), then for each message: element, destination (ready | dead),
--       counter ('' = none), id, new element
-- Returns the number of messages taken back, or -1 if the lease was renewed meanwhile
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place
local q, processing, lease, dead, index = places(1), unpack(KEYS, 14, 17)
if (redis.call('GET', lease) or '') ~= ARGV[1] then return -1 end
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('ZCARD', dead)
redis.call('HLEN', index)
local now, taken = now_ms(), 0
for at = 2, #ARGV, 5 do
  local element, destination, counter, id, again = unpack(ARGV, at, at + 4)
  if redis.call('LREM', processing, -1, element) == 1 then
    taken = taken + 1
    if destination == 'ready' then
      redis.call('LPUSH', q.messages, again)
    else
      index_add(dead, index, now, id, again)
      redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
      has_died(q, element, counter)
      release_key(q, element)
    end
    if counter ~= '' then redis.call('HINCRBY', q.counters, counter, 1) end
  end
end
redis.call('DEL', lease)
return taken
