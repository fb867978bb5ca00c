-- Holds of keys: `buckets` has until when each lasts, beside the bucket of the key. They are apart: tokens that are given
-- back shorten no hold.

local function hold_of(group)
  return '!' .. group
end

local function is_hold(member)
  return string.sub(member, 1, 1) == '!'
end

-- The ms until which a key is held; nil: it is not.
local function key_held_until(buckets, group, now)
  local ends = tonumber(redis.call('ZSCORE', buckets, hold_of(group)) or nil)
  return ends and ends > now and ends or nil
end
