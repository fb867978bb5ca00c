-- exchange_policy: change fields of a queue's policy, unless some were changed meanwhile, also while memory is full.
--
-- KEYS  config, holders, rates
-- ARGV  version, known: number, fields...
--       version: the field that counts the changes
--       known: how many of the fields are compared
--       fields: each with its value, '' = it is not there; first those that are compared, then those that are set
-- Returns 1, or 0 if one of them has another value
-- uses: flow, key_holds, changed_rates, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, holders = KEYS[1], KEYS[2]
local version, known = ARGV[1], tonumber(ARGV[2])
local RATES, FIELDS = 3, 3
-- end of the names
local last = FIELDS + 2 * known - 1
for i = FIELDS, last, 2 do
  if (redis.call('HGET', config, ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
end
local rates, before = named_rates(RATES), rates_in(config)
redis.call('HLEN', holders) -- wrong types are refused here, before the first write
redis.call('HLEN', rates.flow)
redis.call('ZCARD', rates.buckets)
pass_when_full(config)
redis.call('HINCRBY', config, version, 1)
for i = last + 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', config, ARGV[i]) else redis.call('HSET', config, ARGV[i], ARGV[i + 1]) end
end
change_rates(config, rates.flow, rates.buckets, before)
redis.call('UNLINK', holders) -- what consumers hold is counted anew
return 1
