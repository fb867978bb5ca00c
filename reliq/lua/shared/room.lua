-- Whether a queue has room for `more` messages. If not: how many it has, and how many it may have.
local function refused(q, delayed, more)
  local length = redis.call('LLEN', q.messages) + redis.call('ZCARD', delayed) -- refuses wrong types before any write
  local most = tonumber(redis.call('HGET', q.config, 'max_length') or 0)
  if most == 0 then return end
  length = length + redis.call('LLEN', q.high) + redis.call('LLEN', q.low) + redis.call('ZCARD', q.waiting)
  if length + more > most then return length, most end
end
