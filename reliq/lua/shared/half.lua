-- The record of a prepared message, and of what was decided about it.

-- Forget the message, and remember the decision for some ms. Removes first, so that it passes when memory is full.
local function decided(prepared, questions, half, id, decision, remembered)
  redis.call('ZREM', prepared, id)
  redis.call('ZREM', questions, id)
  redis.call('HSET', half, 'state', decision)
  for _, field in ipairs(redis.call('HKEYS', half)) do -- never missing: see `renew`
    if field ~= 'state' then redis.call('HDEL', half, field) end
  end
  redis.call('PEXPIRE', half, remembered)
end
