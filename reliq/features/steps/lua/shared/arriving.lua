-- Records of messages that are not here, or not for long. `waits` has of each by when that ends: under a line feed and the id of one
-- with early signals, under two of one that a monitor brings from another partition, and under three of one that it takes to another
-- one. A signal of such a message is given to all partitions. Requires `records`.

local function arriving(id)
  return '\n' .. record_of(id)
end

local function leaving(id)
  return '\n' .. arriving(id)
end

-- Whether the message of a record may come, or go.
local function is_expected(waits, id)
  for _, member in ipairs({record_of(id), arriving(id), leaving(id)}) do
    if redis.call('ZSCORE', waits, member) then return true end
  end
  return false
end
