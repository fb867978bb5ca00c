-- Move messages into a processing list: a batched LMOVE that removes first, so that it works when memory is full.

-- Take 16 high, 4 normal and 1 low of every 21 while there are messages of each; the others fill the share of an empty list.
local function pop_by_priority(q, limit)
  local share = {high = 0, messages = 0, low = 0}
  local turn = tonumber(redis.call('HGET', q.counters, 'claimed') or 0)
  for at = turn, turn + limit - 1 do
    local slot = at % 21
    local list = slot == 20 and 'low' or slot % 5 == 4 and 'messages' or 'high'
    share[list] = share[list] + 1
  end
  local taken = {}
  local function pop(list, most)
    if most < 1 then return end
    for _, element in ipairs(redis.call('RPOP', q[list], most) or {}) do taken[#taken + 1] = element end
  end
  for _, list in ipairs({'high', 'messages', 'low'}) do pop(list, share[list]) end
  for _, list in ipairs({'high', 'messages', 'low'}) do pop(list, limit - #taken) end
  return taken
end

-- Refill `messages` from another list when it is empty: idle consumers wait on it.
local function keep_waking(q)
  if redis.call('LLEN', q.messages) > 0 then return end
  local next = redis.call('RPOP', q.high) or redis.call('RPOP', q.low)
  if next then redis.call('LPUSH', q.messages, next) end
end

-- Move up to `limit` messages from the tail of the ready lists to the head of `processing`. `policy` has the fields
-- paused, prioritised and round of config.
local function take(q, processing, limit, policy)
  local prioritised, cyclic = policy[2], policy[3]
  local taken = {}
  if limit > 0 then
    if cyclic then open_round(q) end
    taken = prioritised and pop_by_priority(q, limit) or redis.call('RPOP', q.messages, limit) or {}
  end
  if cyclic then open_round(q) end
  if prioritised then keep_waking(q) end
  if #taken > 0 then
    redis.call('LPUSH', processing, unpack(taken))
    redis.call('HINCRBY', q.counters, 'claimed', #taken)
  end
  return taken
end
