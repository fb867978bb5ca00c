-- set_policy: set fields of a queue's policy, also while memory is full: what frees memory is a policy too.
--
-- KEYS  config, rates
-- ARGV  version, fields...
--       version: the field that counts the changes, '' = this one is not counted
--       fields: each with its value
-- Returns 1
-- uses: flow, key_holds, changed_rates, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config = KEYS[1]
local version = ARGV[1]
local RATES, FIELDS = 2, 2
-- end of the names
local rates = named_rates(RATES)
redis.call('HLEN', config) -- wrong types are refused here, before the first write
redis.call('HLEN', rates.flow)
redis.call('ZCARD', rates.buckets)
local before = rates_in(config)
pass_when_full(config)
if version ~= '' then redis.call('HINCRBY', config, version, 1) end
if #ARGV >= FIELDS then redis.call('HSET', config, unpack(ARGV, FIELDS)) end
change_rates(config, rates.flow, rates.buckets, before)
return 1
