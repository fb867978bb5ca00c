-- claim_limited: claim as `claim` does, and only what the limits of the queue allow at this moment.
--
-- KEYS  places, processing, lease, consumers, flow, slots, delayed, index, buckets, suspect_list?
--       suspect_list: the processing list of `suspect`
-- ARGV  lease_ms, limit: number, room: number, consumer, reports: flag, suspect?
--       lease_ms, limit, room: as for claim
--       reports: it tells `breaker` how its messages end
--       suspect: a consumer whose number of messages is put right
-- Returns {'ok' | 'limited' | 'paused' | 'lost', now, reason, wait ms, suspect, element ...}: 'ok' = the queue has no limits any
--         more. reason: '' | 'rate' | 'concurrency' | 'breaker' | 'held', and why fewer than n were taken, or 'probe': the
--         one message by which an open breaker is tried. wait: when to ask again; 0 = when there are messages or,
--         for 'concurrency', when `freed` has an entry.
--         suspect: for the next claim, any consumer; where the queue is full, one that is said to hold messages; while a
--         probe runs, the consumer that has it.
--         {'uncounted', now}: it is not known what consumers hold, since `concurrency` was set; nothing was done, and `tally`
--         counts it
-- A message whose key has no token is delayed until it has one, and keeps its slot: others of its key wait in their line.
-- uses: now, element, bodies, index, rounds, renew, lanes, partition, homes, follow, place, take, flow, holders
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, consumers, flow, delayed, index = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[20], KEYS[21]
local buckets, suspect_list = KEYS[22], KEYS[23]
local lease_ms, limit, room, consumer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local reports, suspect = ARGV[5] == '1', ARGV[6]
local PLACES, SLOTS = 1, 18
-- end of the names
local PROBE_LOOK = 1000 -- ms between two looks at the consumer that has the probe of a breaker
local q, slots = places(PLACES), named_slots(SLOTS)
local now = exact_now_ms()
local now_whole = math.floor(now)
local held_before = redis.call('LLEN', processing) -- wrong types are refused here, before the first write
local alive = is_leased(lease)
redis.call('HLEN', flow)
redis.call('HLEN', slots.holders)
local is_told = redis.call('LLEN', slots.freed) > 0
if suspect_list then redis.call('LLEN', suspect_list) end
redis.call('ZCARD', delayed)
redis.call('HLEN', index)
redis.call('ZCARD', buckets)

local policy = redis.call('HMGET', q.config, 'rate', 'burst', 'concurrency', 'key_rate', 'fair', 'key_concurrency', 'weighted')
local bucket = bucket_of(policy[1], policy[2])
local concurrency = tonumber(policy[3])
local in_use, known, suspect_next = 0, 0, ''
if concurrency then
  suspect_next = redis.call('SRANDMEMBER', consumers) or ''
  local counted = redis.call('HMGET', slots.holders, COUNTED, TOTAL, consumer)
  if counted[1] ~= '1' then return {'uncounted', now_whole} end
  in_use, known = tonumber(counted[2] or 0), tonumber(counted[3] or 0)
end

if not alive then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, consumer) end
  return {'lost', now_whole}
end
renew(lease, now_whole, lease_ms)
if q.paused then return {'paused', now_whole} end
if concurrency then
  if suspect_list and suspect ~= consumer then
    local before = tonumber(redis.call('HGET', slots.holders, suspect) or 0)
    local length = redis.call('LLEN', suspect_list)
    if length ~= before then in_use = write_length(slots, suspect, length, before) end
  end
  in_use = in_use - known + held_before
end

local state = redis.call(
  'HMGET', flow, 'held_until', 'breaker', 'breaker_until', 'full_at', 'waiter', 'waiter_until', 'prober')
if state[1] and tonumber(state[1]) <= now then
  redis.call('HDEL', flow, 'held_until')
  state[1] = false
end
if state[2] and tonumber(state[3]) <= now and not reports then -- nothing would tell how its probe ends
  close_breaker(flow)
  state[2] = false
end
local held, breaker, prober = state[1], state[2], state[7]
if breaker and prober then -- no other probe while its consumer has it, whose list the next claim sees
  suspect_next = prober
  local length -- of its list; nil: this call cannot see it
  if prober == consumer then
    length = held_before
  elseif prober == suspect then
    length = redis.call('LLEN', suspect_list)
  end
  if length ~= 0 then state[3] = math.max(tonumber(state[3]), now + (length and PROBE_LOOK or 1)) end
end

-- The bucket of a key is known as that of the queue is, and forgotten when it is full. A key that is held has one that is
-- full later.
local key_bucket, by_key = bucket_of(policy[4]), policy[4] or policy[5] or policy[6]
local full = redis.call('ZRANGEBYSCORE', buckets, '-inf', now, 'LIMIT', 0, 1000)
if #full > 0 then redis.call('ZREM', buckets, unpack(full)) end
local known_buckets = redis.call('ZCARD', buckets) > 0

local function rest(due)
  return function(element)
    if is_member(q, element) then leave_round(q, group_of(element)) end
    index_add(delayed, index, math.ceil(due), id_of(element), element)
  end
end

-- Where messages have costs of their own, each is weighed when it is taken: one for which the bucket has too little goes back
-- to its place, and ends the claim. One that costs more than a full bucket takes a full one, and the next ones wait for the rest.
local weighted = policy[7]
local function price_of(element)
  return weighted and cost_of(element) or 1
end

-- Nil for a message that its key lets through; else the function that puts it elsewhere.
local function refusal_by_key(element)
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
    local least = math.min(price_of(element), key_bucket.most)
    if least > 0 and tokens_in(key_bucket, full_at, now) < least then return rest(now + ms_until(key_bucket, full_at, now, least)) end
  end
  if key_bucket then
    redis.call('ZADD', buckets, string.format('%.6f', spent(key_bucket, full_at or nil, now, price_of(element))), group)
    known_buckets = true
  end
  if until_claim then release_slot(q, element) end
  return nil
end

if not (bucket or concurrency or held or breaker or by_key or known_buckets) then
  redis.call('HDEL', q.config, 'limited')
  return {'ok', now_whole, '', 0, '', unpack(take(q, processing, limit, room))}
end

local allowed, reason, wait = within_limits(limit, not weighted and bucket, concurrency, in_use, state, now)
if breaker and allowed > 0 then allowed, reason = 1, 'probe' end

local full_at, wait_for_tokens = tonumber(state[4]), nil
local function refusal_of(element, list)
  local price = bucket and weighted and price_of(element) or 0
  local least = price > 0 and math.min(price, bucket.most)
  if least and tokens_in(bucket, full_at, now) < least then
    wait_for_tokens = ms_until(bucket, full_at, now, least)
    return function() redis.call('RPUSH', list, element) end, true
  end
  local put_elsewhere = (by_key or known_buckets) and refusal_by_key(element)
  if not put_elsewhere and least then full_at = spent(bucket, full_at, now, price) end
  return put_elsewhere
end

local looks_at_each = by_key or known_buckets or bucket and weighted
local taken = take(q, processing, allowed, room, looks_at_each and refusal_of)
if #taken > 0 and bucket then
  if not weighted then full_at = spent(bucket, full_at, now, #taken) end
  if full_at then redis.call('HSET', flow, 'full_at', string.format('%.6f', full_at)) end
  if reason == 'rate' then wait = ms_until_tokens(bucket, full_at, now, limit) end
end
if #taken < allowed then reason, wait = '', 0 end -- it is not a limit that ended this claim
if wait_for_tokens then reason, wait = 'rate', wait_for_tokens end
if reason == 'probe' then
  local again_at = now_whole + redis.call('HGET', flow, 'breaker_for') -- if its consumer dies
  redis.call('HSET', flow, 'breaker', 'half_open', 'breaker_until', again_at, 'prober', consumer)
end
if concurrency then
  if held_before + #taken ~= known then write_length(slots, consumer, held_before + #taken, known) end
  in_use = in_use + #taken
end
-- A consumer that got messages is busy: one of those that wait takes what is left, or waits for messages in its place.
local waiter, others_wait = state[5], state[5] and state[5] ~= consumer and tonumber(state[6]) > now
if #taken > 0 and waiter == consumer then redis.call('HDEL', flow, 'waiter', 'waiter_until') end
local free = wait == 0 and not (concurrency and in_use >= concurrency)
if #taken > 0 and free and (waiter or concurrency) and not is_told and (not others_wait or ready_messages(q) > 0) then
  wake_one(slots)
end
if reason == 'concurrency' and #taken == 0 then
  suspect_next = redis.call('HRANDFIELD', slots.holders) or ''
  if suspect_next == TOTAL or suspect_next == COUNTED then suspect_next = '' end
end
return {'limited', now_whole, reason, math.ceil(wait), suspect_next, unpack(taken)}
