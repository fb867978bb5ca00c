-- put_record: store the fields of a record that a message brings from another partition.
--
-- KEYS  followed, config
-- ARGV  fields...
--       fields: each with its value
-- Returns how many are new
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config = KEYS[1], KEYS[2]
-- end of the names
redis.call('HLEN', config) -- a wrong type is refused here, before the first write
local new = redis.call('HSET', followed, unpack(ARGV))
if new > 0 then redis.call('HINCRBY', config, 'recorded', new) end
return new
