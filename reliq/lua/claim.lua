-- claim: renew the lease, then move up to n messages into the consumer's processing list, as many as fit into its room.
--
-- KEYS  places, processing, lease, consumers
-- ARGV  lease_ms, limit: number, room: number, consumer, held?
--       lease_ms: 0 = do not renew the lease
--       limit: n
--       room: bytes of bodies and elements, which the last message may exceed
--       held: after a BLMOVE: how many messages the consumer held before it
-- Returns {'ok' | 'paused' | 'limited' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, one with limits, which `claim_limited` knows, and a consumer without a lease, which must register again. If a late BLMOVE has moved messages
--         to such a consumer, the consumer is added to the set again, so that the monitor finds them.
-- uses: now, element, bodies, rounds, renew, lanes, partition, homes, follow, place, take
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, consumers = KEYS[14], KEYS[15], KEYS[16]
local lease_ms, limit, room, consumer, held = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = now_ms()
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
if not is_leased(lease) then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, consumer) end
  return {'lost', now}
end
renew(lease, now, lease_ms)
if q.paused then return {'paused', now} end
if q.limited then return {'limited', now} end
if q.history_for and held then
  for place = redis.call('LLEN', processing) - held, 1, -1 do
    note(q, 'claimed', redis.call('LINDEX', processing, place - 1), consumer)
  end
end
return {'ok', now, unpack(take(q, processing, limit, room))}
