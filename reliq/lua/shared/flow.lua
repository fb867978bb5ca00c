-- The limits of a queue: how much the rate allows at a moment, and the state of the circuit breaker, in the hash `flow`.
-- A bucket may also be that of a key: then `buckets` has the moment, by the digest of the key.
-- names of the keys and arguments (tools/generate_scripts.py)
local function named_rates(at) -- types not checked
  return {
    flow = KEYS[at], buckets = KEYS[at + 1],
  }
end
local RATES_SIZE = 2
-- end of the names

local UNITS = {s = 1000, m = 60000, h = 3600000, d = 86400000}
local FEWEST = 10 -- ms: a rate of more than a message in this time gives several at once, so that consumers do not ask for each

-- The server's clock in ms, with its microseconds.
local function exact_now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + time[2] / 1000
end

-- The bucket of a rate such as '100/s': the ms of one token, and the most tokens; nil without a rate. Without a burst
-- it holds the tokens of a tenth of a second, at least one.
local function bucket_of(rate, burst)
  if not rate then return nil end
  local tokens, unit = string.match(rate, '^([%d.]+)/(%a)$')
  local each = UNITS[unit] / tokens
  return {each = each, most = tonumber(burst) or math.max(1, math.ceil(100 / each))}
end

-- A bucket is known by the moment at which it is full again: each token that is taken moves this moment by the ms of
-- one (the "generic cell rate algorithm" of ATM networks, ITU-T I.371).
local function tokens_in(bucket, full_at, now)
  local missing = math.max(0, (full_at or 0) - now) / bucket.each
  return math.floor(bucket.most - missing + 1e-6)
end

local function spent(bucket, full_at, now, tokens)
  return math.max(full_at or 0, now) + tokens * bucket.each
end

-- The same where what was taken is put right: by more tokens or, below zero, by such as are given back.
local function corrected(bucket, full_at, now, more)
  if more > 0 then return spent(bucket, full_at, now, more) end
  return math.max(now, (full_at or 0) + more * bucket.each)
end

-- Note when the bucket of the queue, or of a key, is full again.
local function note_full_at(flow, full_at)
  redis.call('HSET', flow, 'full_at', string.format('%.6f', full_at))
end

local function note_key_full_at(buckets, group, full_at)
  redis.call('ZADD', buckets, string.format('%.6f', full_at), group)
end

-- Returns the function that gives back to the rates what the claim of a message has taken that does not start.
local function refund_to(rates, config)
  local rate, burst, key_rate = unpack(redis.call('HMGET', config, 'rate', 'burst', 'key_rate'))
  local bucket, key_bucket, now = bucket_of(rate, burst), bucket_of(key_rate), exact_now_ms()
  return function(group, cost)
    local full_at = bucket and tonumber(redis.call('HGET', rates.flow, 'full_at') or nil)
    if full_at then note_full_at(rates.flow, corrected(bucket, full_at, now, -cost)) end
    full_at = key_bucket and group and tonumber(redis.call('ZSCORE', rates.buckets, group) or nil)
    if full_at then note_key_full_at(rates.buckets, group, corrected(key_bucket, full_at, now, -cost)) end
  end
end

-- The ms until the bucket has so many tokens.
local function ms_until(bucket, full_at, now, tokens)
  return math.max(1, (full_at or 0) - now - (bucket.most - tokens) * bucket.each)
end

-- The ms until the bucket has some tokens: what a caller wants, but not more than it gets in a few ms.
local function ms_until_tokens(bucket, full_at, now, wanted)
  local some = math.max(1, math.min(wanted, bucket.most, math.floor(FEWEST / bucket.each)))
  return ms_until(bucket, full_at, now, some)
end

-- What `flow` says of a queue: moments are numbers, and what is not there is nil or false.
local function limits_state(flow)
  local held_until, breaker, breaker_until, prober, full_at, waiter, waiter_until, lanes, lanes_from = unpack(redis.call(
    'HMGET', flow, 'held_until', 'breaker', 'breaker_until', 'prober', 'full_at', 'waiter', 'waiter_until', 'lanes',
    'lanes_from'))
  return {
    held_until = tonumber(held_until), breaker = breaker, breaker_until = tonumber(breaker_until), prober = prober,
    full_at = tonumber(full_at), waiter = waiter, waiter_until = tonumber(waiter_until), lanes = lanes or '',
    lanes_from = lanes_from,
  }
end

-- What a queue's limits let through at this moment of `wanted` messages: how many, and if that is fewer, the reason and
-- the ms after which it may be more (0 = when another message has ended).
local function within_limits(wanted, bucket, concurrency, in_use, state, now)
  local most, reason, wait = wanted, '', 0
  local function at_most(number, why, ms)
    if number < most then most, reason, wait = number, why, ms end
  end
  if state.held_until and state.held_until > now then at_most(0, 'held', state.held_until - now) end
  if state.breaker and state.breaker_until > now then at_most(0, 'breaker', state.breaker_until - now) end
  if bucket then
    at_most(tokens_in(bucket, state.full_at, now), 'rate', ms_until_tokens(bucket, state.full_at, now, wanted))
  end
  if concurrency then at_most(math.max(0, concurrency - in_use), 'concurrency', 0) end
  return most, reason, wait
end

local function close_breaker(flow)
  redis.call(
    'HDEL', flow, 'breaker', 'breaker_until', 'breaker_for', 'breaker_since', 'breaker_passed', 'breaker_failed', 'prober')
end

local function open_breaker(config, flow, now, open_for)
  close_breaker(flow)
  redis.call('HSET', flow, 'breaker', 'open', 'breaker_until', now + open_for, 'breaker_for', open_for)
  redis.call('HSET', config, 'limited', 1)
end

local function ready_messages(q)
  return redis.call('LLEN', q.messages) + redis.call('LLEN', q.high) + redis.call('LLEN', q.low)
end
