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
-- uses: now, element, bodies, index, rounds, renew, lanes, partition, homes, follow, place, take, flow, key_holds, holders
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, consumers, flow, delayed, index = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[20], KEYS[21]
local buckets, suspect_list = KEYS[22], KEYS[23]
local lease_ms, limit, room, consumer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local reports, suspect = ARGV[5] == '1', ARGV[6]
local PLACES, SLOTS = 1, 18
-- end of the names
local LINES = 20 -- lines that one call looks at after a change of the limits of keys
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

local rate, burst, concurrency, key_rate, fair, key_concurrency, weighted, weights = unpack(redis.call(
  'HMGET', q.config, 'rate', 'burst', 'concurrency', 'key_rate', 'fair', 'key_concurrency', 'weighted', 'weight_digests'))
concurrency = tonumber(concurrency)
local bucket, key_bucket, by_key = bucket_of(rate, burst), bucket_of(key_rate), key_rate or fair or key_concurrency
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

local state = limits_state(flow)
if state.held_until and state.held_until <= now then
  redis.call('HDEL', flow, 'held_until')
  state.held_until = nil
end
if state.breaker and state.breaker_until <= now and not reports then -- nothing would tell how its probe ends
  close_breaker(flow)
  state.breaker = nil
end
if state.breaker and state.prober then -- no other probe while its consumer has it, whose list the next claim sees
  suspect_next = state.prober
  local length -- of its list; nil: this call cannot see it
  if state.prober == consumer then
    length = held_before
  elseif state.prober == suspect then
    length = redis.call('LLEN', suspect_list)
  end
  if length ~= 0 then state.breaker_until = math.max(state.breaker_until, now + (length and PROBE_LOOK or 1)) end
end

-- The bucket of a key is known as that of the queue is, and forgotten when it is full; so is a hold when it ends.
local full = redis.call('ZRANGEBYSCORE', buckets, '-inf', now, 'LIMIT', 0, 1000)
if #full > 0 then redis.call('ZREM', buckets, unpack(full)) end
local known_buckets = redis.call('ZCARD', buckets) > 0

-- How many tokens a message takes, where messages have costs of their own.
local function price_of(element)
  return weighted and cost_of(element) or 1
end

-- Until when a message waits whose key is held, or has too few tokens for it; nil: it may go.
local function waits_until(element, group, key_full_at)
  local held = known_buckets and key_held_until(buckets, group, now)
  if held then return held end
  if not key_bucket or not key_full_at or key_full_at <= now then return nil end
  local least = math.min(price_of(element), key_bucket.most)
  if least <= 0 or tokens_in(key_bucket, key_full_at, now) >= least then return nil end
  return now + ms_until(key_bucket, key_full_at, now, least)
end

local function delay(element, due)
  if is_member(q, element) then leave_round(q, group_of(element)) end
  index_add(delayed, index, math.ceil(due), id_of(element), element)
end

-- Take the slot and the tokens that a message needs of its key. If the key lacks some, returns the function that puts
-- the message elsewhere; one that waits for tokens keeps its slot.
local function take_of_key(element)
  local group = group_of(element)
  if not group or is_latest(group) then return nil end -- a dedup key has no limits
  local most, until_claim
  if is_laned(element) then most, until_claim = slots_of(q, group) end
  if most and not has_slot(q, group, id_of(element)) and not take_slot(q, group, id_of(element)) then
    return function() join_line(q, group, element) end
  end
  local key_full_at = key_bucket and known_buckets and tonumber(redis.call('ZSCORE', buckets, group) or nil)
  local due = waits_until(element, group, key_full_at)
  if due then return function() delay(element, due) end end
  if key_bucket then
    note_key_full_at(buckets, group, spent(key_bucket, key_full_at, now, price_of(element)))
    known_buckets = true
  end
  if until_claim then release_slot(q, element) end
  return nil
end

-- After a change of the limits of keys let the first ones of lines be ready whose keys have free slots by now, some lines
-- with each call. Returns whether there may be others. `lanes`: the limits by which the lines were looked at.
local function fill_lines()
  local lanes = by_key and table.concat({key_concurrency or '', fair or '', key_rate and 1 or '', weights or ''}, ' ') or ''
  local from = state.lanes_from
  if state.lanes ~= lanes then
    redis.call('HSET', flow, 'lanes', lanes)
    from = ''
  end
  if not from then return false end
  for _ = 1, LINES do
    local after = from == '' and '-' or '(' .. from .. '\255'
    local first = redis.call('ZRANGEBYLEX', q.waiting, after, '+', 'LIMIT', 0, 1)[1]
    if not first then
      redis.call('HDEL', flow, 'lanes_from', lanes == '' and 'lanes' or 'lanes_from')
      return false
    end
    from = string.sub(first, 1, GROUP)
    if not is_of_flow(first) and is_laned(element_in_line(first)) and not is_arriving(q, from) then
      fill_slots(q, from, tonumber(redis.call('HGET', q.active, '#' .. from) or 0))
    end
  end
  redis.call('HSET', flow, 'lanes_from', from)
  return true
end
local has_lines = fill_lines()

if not (bucket or concurrency or state.held_until or state.breaker or by_key or known_buckets or has_lines) then
  redis.call('HDEL', q.config, 'limited')
  return {'ok', now_whole, '', 0, '', unpack(take(q, processing, limit, room))}
end

local allowed, reason, wait = within_limits(limit, not weighted and bucket, concurrency, in_use, state, now)
if state.breaker and allowed > 0 then allowed, reason = 1, 'probe' end

-- Take what a message needs of its key and, where each is weighed, of the rate: one for which the bucket has too
-- little goes back to its place, and ends the claim. One that costs more than a full bucket takes a full one, and the
-- next ones wait for the rest.
local full_at, wait_for_tokens = state.full_at, nil
local function take_of_limits(element, list)
  local price = bucket and weighted and price_of(element) or 0
  local least = price > 0 and math.min(price, bucket.most)
  if least and tokens_in(bucket, full_at, now) < least then
    wait_for_tokens = ms_until(bucket, full_at, now, least)
    return function() redis.call('RPUSH', list, element) end, true
  end
  local put_elsewhere = (by_key or known_buckets) and take_of_key(element)
  if not put_elsewhere and least then full_at = spent(bucket, full_at, now, price) end
  return put_elsewhere
end

local looks_at_each = by_key or known_buckets or bucket and weighted
local taken = take(q, processing, allowed, room, looks_at_each and take_of_limits)
if #taken > 0 and bucket then
  if not weighted then full_at = spent(bucket, full_at, now, #taken) end
  if full_at then note_full_at(flow, full_at) end
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
local others_wait = state.waiter and state.waiter ~= consumer and state.waiter_until > now
if #taken > 0 and state.waiter == consumer then redis.call('HDEL', flow, 'waiter', 'waiter_until') end
local free = wait == 0 and not (concurrency and in_use >= concurrency)
if #taken > 0 and free and (state.waiter or concurrency) and not is_told and (not others_wait or ready_messages(q) > 0) then
  wake_one(slots)
end
if reason == 'concurrency' and #taken == 0 then
  suspect_next = redis.call('HRANDFIELD', slots.holders) or ''
  if suspect_next == TOTAL or suspect_next == COUNTED then suspect_next = '' end
end
return {'limited', now_whole, reason, math.ceil(wait), suspect_next, unpack(taken)}
