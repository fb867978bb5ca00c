-- claim_limited: claim as `claim` does, and only what the limits of the queue allow at this moment.
--
-- KEYS  1-11 places  12 processing  13 lease  14 consumers  15 flow  16 freed  17.. processing lists of the consumers in ARGV
-- ARGV  1 lease ms  2 n  3 room, as for claim  4 consumer  5 '1' = it tells `breaker` how its messages end
--       6.. all consumers of the queue, as far as the caller knows; read only where `concurrency` is limited
-- Returns {'ok' | 'limited' | 'paused' | 'lost', now, reason, wait ms, element ...}: 'ok' = the queue has no limits any
--         more. reason: '' | 'rate' | 'concurrency' | 'breaker' | 'held', and why fewer than n were taken, or 'probe': the
--         one message by which an open breaker is tried. wait: when to ask again; 0 = when there are messages or,
--         for 'concurrency', when `freed` has an entry.
--         {'consumers', now, consumer ...}: the caller did not know all of them; nothing was done
-- uses: now, element, bodies, rounds, renew, place, take, flow
local q, processing, lease, consumers, flow, freed = places(1), unpack(KEYS, 12, 16)
local lease_ms, limit, room, consumer, reports = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1'
local now = exact_now_ms()
local now_whole = math.floor(now)
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
redis.call('HLEN', flow)
redis.call('LLEN', freed)

local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'round', 'rate', 'burst', 'concurrency')
local bucket = bucket_of(policy[4], policy[5])
local concurrency = tonumber(policy[6])
local in_use = 0
if concurrency then
  local known = {}
  for at = 6, #ARGV do
    known[ARGV[at]] = true
    in_use = in_use + redis.call('LLEN', KEYS[at + 11])
  end
  local members = redis.call('SMEMBERS', consumers)
  for _, member in ipairs(members) do
    if not known[member] then return {'consumers', now_whole, unpack(members)} end
  end
end

if not renew(lease, now_whole + lease_ms) then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, consumer) end
  return {'lost', now_whole}
end
if policy[1] then return {'paused', now_whole} end

local state = redis.call('HMGET', flow, 'held_until', 'breaker', 'breaker_until', 'full_at')
if state[1] and tonumber(state[1]) <= now then
  redis.call('HDEL', flow, 'held_until')
  state[1] = false
end
if state[2] and tonumber(state[3]) <= now and not reports then -- nothing would tell how its probe ends
  close_breaker(flow)
  state[2] = false
end
local held, breaker = state[1], state[2]
if not (bucket or concurrency or held or breaker) then
  redis.call('HDEL', q.config, 'limited')
  return {'ok', now_whole, '', 0, unpack(take(q, processing, limit, room, policy))}
end

local allowed, reason, wait = within_limits(limit, bucket, concurrency, in_use, state, now)
if breaker and allowed > 0 then allowed, reason = 1, 'probe' end

local taken = take(q, processing, allowed, room, policy)
if #taken > 0 and bucket then
  local full_at = spent(bucket, tonumber(state[4]), now, #taken)
  redis.call('HSET', flow, 'full_at', string.format('%.6f', full_at))
  if reason == 'rate' then wait = ms_until_tokens(bucket, full_at, now, limit) end
end
if #taken < allowed then reason, wait = '', 0 end -- it is not a limit that ended this claim
if reason == 'probe' then
  redis.call('HSET', flow, 'breaker', 'half_open', 'breaker_until', now_whole + redis.call('HGET', flow, 'breaker_for'))
end
if concurrency and in_use + #taken < concurrency and #taken == allowed and ready_messages(q) > 0
    and redis.call('LLEN', freed) == 0 then
  redis.call('LPUSH', freed, '1') -- one of the consumers that wait finds the rest
end
return {'limited', now_whole, reason, math.ceil(wait), unpack(taken)}
