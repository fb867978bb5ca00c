-- Partitions: which keys have their home in this queue. `homes` of config has a bit for each of 4,096 buckets, in hexadecimal
-- digits, and after these the version of the queue's layout; the first three digits of a digest are its bucket
-- (reliq.model.partitions). A queue without this field is the home of all keys.
-- `retired`: the partition takes no new messages. Requires `element` and `lanes`.

local function is_home(q, digest)
  if q.homes == nil then q.homes = redis.call('HGET', q.config, 'homes') end
  if not q.homes then return true end
  local bucket = tonumber(string.sub(digest, 1, 3), 16)
  local digit = tonumber(string.sub(q.homes, math.floor(bucket / 4) + 1, math.floor(bucket / 4) + 1), 16)
  return bit.band(digit, bit.lshift(1, bucket % 4)) > 0
end

-- Whether a producer knows an earlier layout than this partition: what it takes for the home of a key may have been that
-- before, and be it again.
local function is_behind(q, version)
  return q.homes and version < tonumber(string.sub(q.homes, 1025))
end

-- Whether messages of a key are here: ready, in processing, to be tried again, or waiting for the key.
local function has_key(q, group)
  return redis.call('HEXISTS', q.active, group) == 1 or redis.call('HEXISTS', q.active, '#' .. group) == 1
      or first_in_line(q, group) ~= nil
end

-- Whether the key of a message has its home in another partition. The members of a cycle stay in the first one.
local function is_away(q, group, element)
  return q.homes ~= false and not is_latest(group) and not is_home(q, group) and not is_cyclic(element)
end
