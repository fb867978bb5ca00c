-- instruct: tell the process of a consumer to pause, to go on or to stop. It reads that with its next heartbeat.
--
-- KEYS  told, consumers
-- ARGV  consumer, field, at, kept, anyway: flag
--       field: the instruction, as `told` has it: a blank, a verb, and the process
--       at: ms of the instruction: of several the latest counts
--       kept: ms for which the instruction is
--       anyway: also if the consumer is not registered, as that of a process whose partitions have just changed hands
-- Returns 1, or 0 if the consumer is not registered
-- uses: full
-- names of the keys and arguments (tools/generate_scripts.py)
local told, consumers = KEYS[1], KEYS[2]
local consumer, field, at, kept, anyway = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
-- end of the names
redis.call('HLEN', told) -- a wrong type is refused here, before the first write
if not anyway and redis.call('SISMEMBER', consumers, consumer) == 0 then return 0 end
pass_when_full(told)
redis.call('HSET', told, field, at)
redis.call('PEXPIRE', told, kept)
return 1
