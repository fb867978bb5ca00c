-- put_record: store the fields of a record that a message brings from another partition.
--
-- KEYS  followed, config
-- ARGV  fields...
--       fields: each with its value; the head comes first
-- Returns how many are new
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config = KEYS[1], KEYS[2]
local FIELDS = 1
-- end of the names
redis.call('HLEN', config) -- a wrong type is refused here, before the first write
local is_head = not string.find(ARGV[FIELDS], '\n', 2, true)
local there = redis.call('HEXISTS', followed, ARGV[FIELDS])
local new = redis.call('HSET', followed, unpack(ARGV, FIELDS))
if is_head and there == 0 then redis.call('HINCRBY', config, 'recorded', 1) end
return new
