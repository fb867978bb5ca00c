-- claim: renew the lease, then move up to n messages into the consumer's processing list, as many as fit into its room.
--
-- KEYS  1-13 places  14 processing  15 lease  16 consumers
-- ARGV  1 lease ms  2 n  3 room: bytes of bodies and elements, which the last message may exceed  4 consumer
--       5 after a BLMOVE: how many messages the consumer held before it
-- Returns {'ok' | 'paused' | 'limited' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, one with limits, which `claim_limited` knows, and a consumer without a lease, which must register again. If a late BLMOVE has moved messages
--         to such a consumer, the consumer is added to the set again, so that the monitor finds them.
-- uses: now, element, bodies, rounds, renew, lanes, partition, homes, follow, place, take
local q, processing, lease, consumers = places(1), KEYS[14], KEYS[15], KEYS[16]
local lease_ms, limit, room, consumer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local now = now_ms()
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
if not renew(lease, now + lease_ms) then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, consumer) end
  return {'lost', now}
end
local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'round', 'limited')
if policy[1] then return {'paused', now} end
if policy[4] then return {'limited', now} end
if q.history and ARGV[5] then
  for place = redis.call('LLEN', processing) - ARGV[5], 1, -1 do
    note(q, 'claimed', redis.call('LINDEX', processing, place - 1), consumer)
  end
end
return {'ok', now, unpack(take(q, processing, limit, room, policy))}
