-- take_in: tell a partition of which keys it is the home, unless it knows a later layout of its queue.
--
-- KEYS  config
-- ARGV  homes, retired
--       homes: see shared/homes
--       retired: 1: it takes no new messages any more, else 0
-- Returns 0, or the version of the later one, which it keeps
-- uses: element, lanes, partition, homes
-- names of the keys and arguments (tools/generate_scripts.py)
local config = KEYS[1]
local homes, retired = ARGV[1], ARGV[2]
-- end of the names
local known, layout = unpack(redis.call('HMGET', config, 'homes', 'partitions'))
local version = math.max(known and version_of(known) or 0, layout and cjson.decode(layout).version or 0)
if version > version_of(homes) then return version end
redis.call('HDEL', config, 'retired') -- a removal first: works when memory is full
redis.call('HSET', config, 'homes', homes, 'retired', retired)
return 0
