-- claim_limited: claim as `claim` does, and only what the limits of the queue allow at this moment.
--
-- KEYS  places, processing, lease, consumers, flow, freed, delayed, index, buckets, lists...
--       lists: the processing lists of `others`
-- ARGV  lease_ms, limit: number, room: number, consumer, reports: flag, others...
--       limit, room: as for claim
--       reports: it tells `breaker` how its messages end
--       others: all consumers of the queue, as far as the caller knows; read only where `concurrency` is limited
-- Returns {'ok' | 'limited' | 'paused' | 'lost', now, reason, wait ms, element ...}: 'ok' = the queue has no limits any
--         more. reason: '' | 'rate' | 'concurrency' | 'breaker' | 'held', and why fewer than n were taken, or 'probe': the
--         one message by which an open breaker is tried. wait: when to ask again; 0 = when there are messages or,
--         for 'concurrency', when `freed` has an entry.
--         {'consumers', now, consumer ...}: the caller did not know all of them; nothing was done
-- A message whose key has no token is delayed until it has one, and keeps its slot: others of its key wait in their line.
-- uses: now, element, bodies, index, rounds, renew, lanes, partition, homes, follow, place, take, flow
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, consumers, flow, freed, delayed = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local index, buckets = KEYS[20], KEYS[21]
local lease_ms, limit, room, consumer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local reports = ARGV[5] == '1'
local PLACES, LISTS, OTHERS = 1, 22, 6
-- end of the names
local q = places(PLACES)
local now = exact_now_ms()
local now_whole = math.floor(now)
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
redis.call('HLEN', flow)
redis.call('LLEN', freed)
redis.call('ZCARD', delayed)
redis.call('HLEN', index)
redis.call('ZCARD', buckets)

local policy = redis.call(
  'HMGET', q.config, 'paused', 'prioritised', 'round', 'rate', 'burst', 'concurrency', 'key_rate', 'fair', 'key_concurrency')
local bucket = bucket_of(policy[4], policy[5])
local concurrency = tonumber(policy[6])
local in_use = 0
if concurrency then
  local known = {}
  for place = 0, #ARGV - OTHERS do
    known[ARGV[OTHERS + place]] = true
    in_use = in_use + redis.call('LLEN', KEYS[LISTS + place])
  end
  local answer, all_known = {'consumers', now_whole}, true
  for place, member in ipairs(redis.call('SMEMBERS', consumers)) do
    answer[place + 2] = member -- `unpack` has a limit
    all_known = all_known and known[member]
  end
  if not all_known then return answer end
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

-- The bucket of a key is known as that of the queue is, and forgotten when it is full. A key that is held has one that is
-- full later.
local key_bucket, by_key = bucket_of(policy[7]), policy[7] or policy[8] or policy[9]
local full = redis.call('ZRANGEBYSCORE', buckets, '-inf', now, 'LIMIT', 0, 1000)
if #full > 0 then redis.call('ZREM', buckets, unpack(full)) end
local known_buckets = redis.call('ZCARD', buckets) > 0

local function rest(due)
  return function(element)
    if is_member(q, element) then leave_round(q, group_of(element)) end
    index_add(delayed, index, math.ceil(due), id_of(element), element)
  end
end

-- Nil for a message that its key lets through; else the function that puts it elsewhere.
local function refusal_of(element)
  local group = group_of(element)
  if not group or is_latest(group) then return nil end -- a dedup key has no limits
  local laned, most, until_claim = is_laned(element), nil, nil
  if laned then
    most, until_claim = slots_of(q, group)
    if most and not has_slot(q, group, id_of(element)) and not take_slot(q, group, id_of(element)) then
      return function() join_line(q, group, element) end
    end
  end
  local full_at = known_buckets and tonumber(redis.call('ZSCORE', buckets, group) or nil)
  if full_at and full_at > now then
    if not key_bucket then return rest(full_at) end
    if tokens_in(key_bucket, full_at, now) < 1 then
      return rest(now + ms_until_tokens(key_bucket, full_at, now, 1))
    end
  end
  if key_bucket then
    redis.call('ZADD', buckets, string.format('%.6f', spent(key_bucket, full_at or nil, now, 1)), group)
    known_buckets = true
  end
  if until_claim then release_slot(q, element) end
  return nil
end

if not (bucket or concurrency or held or breaker or by_key or known_buckets) then
  redis.call('HDEL', q.config, 'limited')
  return {'ok', now_whole, '', 0, unpack(take(q, processing, limit, room, policy))}
end

local allowed, reason, wait = within_limits(limit, bucket, concurrency, in_use, state, now)
if breaker and allowed > 0 then allowed, reason = 1, 'probe' end

local taken = take(q, processing, allowed, room, policy, (by_key or known_buckets) and refusal_of)
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
