-- stage_enlist: record a part in another cluster slot before it is staged, so that the end of the job includes it.
-- Begins the job if it is new.
--
-- KEYS  job, jobs, parts
-- ARGV  name, run, limit_ms, part, messages
--       name: the job's
--       limit_ms: time limit, renewed
--       messages: n that will be staged
-- Returns 'ok'; 'closed': the job is decided, or belongs to another run
-- uses: now, enlisting
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs, parts = KEYS[1], KEYS[2], KEYS[3]
local name, run, limit_ms, part, messages = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- end of the names
local state, current = unpack(redis.call('HMGET', job, 'state', 'run'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
redis.call('SCARD', parts)
if state and (state ~= 'open' or current ~= run) then return 'closed' end
enlist(job, jobs, parts, name, run, limit_ms, part, messages)
return 'ok'
