-- serve: note that a worker process serves the partitions of a queue, and read who else does.
--
-- KEYS  servers, config
-- ARGV  owner, silent: number
--       silent: ms after which a silent process is forgotten, or 0: this process leaves
-- Returns {layout of the partitions, owner ...}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local servers, config = KEYS[1], KEYS[2]
local owner, silent = ARGV[1], tonumber(ARGV[2])
-- end of the names
local now = now_ms()
local layout = redis.call('HGET', config, 'partitions') -- a wrong type is refused here, before the first write
if silent > 0 then
  redis.call('ZREMRANGEBYSCORE', servers, '-inf', now - silent) -- a removal first: works when memory is full
  redis.call('ZADD', servers, now, owner)
else
  redis.call('ZREM', servers, owner)
end
return {layout or '', unpack(redis.call('ZRANGE', servers, 0, -1))}
