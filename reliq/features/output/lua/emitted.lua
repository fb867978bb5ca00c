-- emitted: read a part of the output of a message.
--
-- KEYS  followed, output
-- ARGV  id, after, limit
--       after: the id of a chunk; '' = from the first one on
--       limit: chunks at most
-- Returns {head, whether there is a stream, chunk ...}: each chunk as XRANGE returns it; the head is nil without one
-- uses: heads
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, output = KEYS[1], KEYS[2]
local id, after, limit = ARGV[1], ARGV[2], ARGV[3]
-- end of the names
local head = redis.call('HGET', followed, head_field(id))
local found = redis.call('XRANGE', output, after == '' and '-' or '(' .. after, '+', 'COUNT', limit)
return {head, redis.call('XLEN', output), found}
