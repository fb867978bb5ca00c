-- gone_outputs: find streams of output that are to be deleted, as their messages have left the queue unhandled; read only.
--
-- KEYS  followed, outputs
-- ARGV  limit: number
-- Returns {up to which number, id and ms ...}: with a blank between; the ms at which the message left
-- uses: ring
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, outputs = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
-- end of the names
redis.call('STRLEN', outputs) -- a wrong type is refused here
return read_notes(followed, '\t', limit)
