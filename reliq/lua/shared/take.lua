-- Move up to `limit` messages from the tail of `messages` to the head of `processing`: LMOVE in a batch, with the
-- removal first, so that it passes when memory is full.
local function take(messages, processing, counters, limit)
  if limit < 1 then return {} end
  redis.call('LLEN', processing) -- a wrong type is refused here, before the first write
  local taken = redis.call('RPOP', messages, limit)
  if not taken then return {} end
  redis.call('LPUSH', processing, unpack(taken))
  redis.call('HINCRBY', counters, 'claimed', #taken)
  return taken
end
