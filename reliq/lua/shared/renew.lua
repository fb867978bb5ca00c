-- Whether a lease exists; fails if its key has a foreign type.
local function is_leased(lease)
  return redis.call('STRLEN', lease) > 0
end

-- Renew a lease that exists, for so many ms from now on; 0: leave it. A full Redis refuses what adds as the first write of a
-- script; after a write that needs no memory, as this one, it accepts the others.
local function renew(lease, now, lease_ms)
  redis.call('PERSIST', lease)
  if lease_ms ~= '0' then redis.call('SET', lease, now + lease_ms) end
end
