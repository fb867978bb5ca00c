-- replace_layout: store a layout of a queue's partitions in the place of another, also while memory is full.
--
-- KEYS  config, counters
-- ARGV  before, after, alone: flag, counts...
--       before: the layout that is replaced, '' = none
--       alone: the queue has no other partitions any more: this is the home of all keys
--       counts: names of counters, each with what is added to it: those of a partition that is forgotten
-- Returns 1, also if an earlier call has stored it; 0 if the layout was changed meanwhile
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, counters = KEYS[1], KEYS[2]
local before, after, alone = ARGV[1], ARGV[2], ARGV[3] == '1'
local COUNTS = 4
-- end of the names
local known = redis.call('HGET', config, 'partitions') or ''
if known ~= before then return known == after and 1 or 0 end
redis.call('HLEN', counters) -- a wrong type is refused here, before the first write
pass_when_full(config)
if alone then redis.call('HDEL', config, 'homes') end
redis.call('HSET', config, 'partitions', after)
for i = COUNTS, #ARGV, 2 do redis.call('HINCRBY', counters, ARGV[i], ARGV[i + 1]) end
return 1
