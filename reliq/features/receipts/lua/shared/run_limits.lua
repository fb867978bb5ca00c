-- What the limits of a queue let through of the messages that wait behind a claimed one. Requires `element`, `flow` and `key_holds`.

-- Nil where there are no limits. `let_through(group, element)`: whether this one may go, which then has taken its tokens;
-- `write()`: note what was taken.
local function limits_of(q, flow, buckets)
  local limited, rate, burst, key_rate, weighted =
    unpack(redis.call('HMGET', q.config, 'limited', 'rate', 'burst', 'key_rate', 'weighted'))
  if not limited then return nil end
  local now, bucket, key_bucket = exact_now_ms(), bucket_of(rate, burst), bucket_of(key_rate)
  local state = limits_state(flow)
  local closed = state.held_until and state.held_until > now or state.breaker
  local full_at, full_ats = state.full_at, {}

  local function has(one, at, price)
    local least = math.min(price, one.most) -- one that costs more than a full bucket takes a full one
    return least <= 0 or tokens_in(one, at, now) >= least
  end

  local function let_through(group, element)
    if closed then return false end
    local price = weighted and cost_of(element) or 1
    if key_held_until(buckets, group, now) then return false end
    local key_full_at = full_ats[group] or tonumber(redis.call('ZSCORE', buckets, group) or nil)
    if bucket and not has(bucket, full_at, price) then return false end
    if key_bucket and not has(key_bucket, key_full_at, price) then return false end
    if bucket then full_at = spent(bucket, full_at, now, price) end
    if key_bucket then full_ats[group] = spent(key_bucket, key_full_at, now, price) end
    return true
  end

  local function write()
    if bucket and full_at then note_full_at(flow, full_at) end
    for group, at in pairs(full_ats) do note_key_full_at(buckets, group, at) end
  end

  return {let_through = let_through, write = write}
end
