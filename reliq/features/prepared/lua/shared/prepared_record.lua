-- The record of a prepared message and of the decision about it.

-- Delete the message's fields and keep the decision for `remembered` ms. Removes before it adds: works when memory is full.
local function record_decision(prepared, questions, record, id, decision, remembered)
  redis.call('ZREM', prepared, id)
  redis.call('ZREM', questions, id)
  redis.call('HSET', record, 'state', decision)
  for _, field in ipairs(redis.call('HKEYS', record)) do -- never missing: see `renew`
    if field ~= 'state' then redis.call('HDEL', record, field) end
  end
  redis.call('PEXPIRE', record, remembered)
end
