-- A rate that is changed: its bucket lacks as many tokens as before, which come at the new rate if that is sooner. So
-- none waits an hour because the rate was one an hour. Requires `flow` and `key_holds`.

local MOST_KEYS = 10000 -- whose buckets are looked at, those first that are full last

local function rates_in(config)
  return redis.call('HMGET', config, 'rate', 'key_rate')
end

-- Returns the function that tells when a bucket is full by the new rate; nil: not sooner than by the old one.
local function full_sooner(before, after, now)
  if before == after or not after then return nil end
  local _, old = pcall(bucket_of, before) -- it may be what another program has written
  local share = type(old) == 'table' and bucket_of(after).each / old.each or 0
  if share >= 1 then return nil end
  return function(full_at) return now + (full_at - now) * share end
end

-- Put the buckets right. `before`: the rates that were in force.
local function change_rates(config, flow, buckets, before)
  local after, now = rates_in(config), exact_now_ms()
  local sooner = full_sooner(before[1], after[1], now)
  local full_at = sooner and tonumber(redis.call('HGET', flow, 'full_at') or nil)
  if full_at and full_at > now then note_full_at(flow, sooner(full_at)) end
  sooner = full_sooner(before[2], after[2], now)
  if not sooner then return end
  local found = redis.call('ZREVRANGEBYSCORE', buckets, '+inf', now, 'WITHSCORES', 'LIMIT', 0, MOST_KEYS)
  for at = 1, #found, 2 do
    if not is_hold(found[at]) then note_key_full_at(buckets, found[at], sooner(found[at + 1])) end
  end
end
