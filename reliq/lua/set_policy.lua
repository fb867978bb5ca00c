-- set_policy: set fields of a queue's policy, also while memory is full: what frees memory is a policy too.
--
-- KEYS  config
-- ARGV  version, fields...
--       version: the field that counts the changes, '' = this one is not counted
--       fields: each with its value
-- Returns 1
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local config = KEYS[1]
local version = ARGV[1]
local FIELDS = 2
-- end of the names
redis.call('HLEN', config) -- a wrong type is refused here, before the first write
pass_when_full(config)
if version ~= '' then redis.call('HINCRBY', config, version, 1) end
if #ARGV >= FIELDS then redis.call('HSET', config, unpack(ARGV, FIELDS)) end
return 1
