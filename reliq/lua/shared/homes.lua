-- Partitions: which keys have their home in this queue. `homes` of config has a bit for each of 4,096 buckets, in hexadecimal
-- digits, and after these the version of the queue's layout; the first three digits of a digest are its bucket
-- (reliq.model.partitions). A queue without this field is the home of all keys, a partition without it of none. While the
-- number of partitions changes, a blank follows, and the same for the buckets that have come here. Requires `element`, `lanes`
-- and `partition`.

local DIGITS = 1024

-- Whether the digits behind a place in `homes` have the bucket of a digest.
local function has_bucket(homes, behind, digest)
  local bucket = tonumber(string.sub(digest, 1, 3), 16)
  local at = behind + math.floor(bucket / 4) + 1
  return math.floor(tonumber(string.sub(homes, at, at), 16) / 2 ^ (bucket % 4)) % 2 == 1 -- fakeredis has no `bit`
end

local function version_of(homes)
  return tonumber(string.match(homes, '^%d+', DIGITS + 1))
end

local function is_home(q, digest)
  if q.homes == nil then q.homes = redis.call('HGET', q.config, 'homes') end
  if not q.homes then return not is_partition(q.config) end
  return has_bucket(q.homes, 0, digest)
end

-- Whether the former home of a key, another partition, may still have messages of it. `asked`: the version of the layout by
-- which it was asked, and had none; by another layout than that of this partition another one was asked, or none.
local function is_arriving(q, group, asked)
  local blank = q.homes and string.find(q.homes, ' ', DIGITS + 1, true)
  return blank and has_bucket(q.homes, blank, group) and asked ~= version_of(q.homes)
end

-- Whether a producer knows an earlier layout than this partition: what it takes for the home of a key may have been that
-- before, and be it again.
local function is_behind(q, version)
  return q.homes and version < version_of(q.homes)
end

-- Whether messages of a key are here: ready, in processing, to be tried again, or waiting for the key.
local function has_key(q, group)
  return redis.call('HEXISTS', q.active, group) == 1 or redis.call('HEXISTS', q.active, '#' .. group) == 1
      or first_in_line(q, group) ~= nil
end

-- Whether the key of a message has its home in another partition. The members of a cycle stay in the first one.
local function is_away(q, group, element)
  return not is_latest(group) and not is_home(q, group) and not is_cyclic(element)
end
