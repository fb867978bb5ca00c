-- describe: replace what is known about the process of a consumer, unless it has left meanwhile.
--
-- KEYS  workers
--       workers: only these, as for a heartbeat
-- ARGV  consumer, about
-- Returns 1, or 0 if nothing is known of it: it has left, or said nothing when it registered
-- names of the keys and arguments (tools/generate_scripts.py)
local workers = KEYS[1]
local consumer, about = ARGV[1], ARGV[2]
-- end of the names
if redis.call('HEXISTS', workers, consumer) == 0 then return 0 end
redis.call('HSET', workers, consumer, about)
return 1
