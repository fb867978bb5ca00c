-- A cycle goes round by round: a member who was visited enters `next_round`, and when everybody is back from this round that
-- list becomes `messages`. So nobody is ever visited twice more than another. Needs `now` and `element` in front.
--
-- `rounds` says of each member who is ready or being visited for which round that is; config has the current one. Members
-- who rest are in no round: they set their own pace, and nobody waits for them.

local PATIENCE = 5000 -- ms; a visit that holds up the others for longer has left the round

-- Whether this is the message that goes round for its key. One whose member was removed is not, even if he is back with
-- another message.
local function is_member(q, element)
  local entry = is_cyclic(element) and redis.call('HGET', q.cycle, group_of(element))
  return entry and string.match(entry, '^%S+') == id_of(element)
end

-- Begin the next round, if everybody is back from this one.
local function open_round(q)
  if redis.call('LLEN', q.messages) > 0 or redis.call('LLEN', q.next_round) == 0 then return end
  local round, held_since = unpack(redis.call('HMGET', q.config, 'round', 'round_held'))
  if redis.call('ZCOUNT', q.rounds, '-inf', round) > 0 then
    local now = now_ms()
    if not held_since then
      redis.call('HDEL', q.config, 'round_held') -- a removal first: then it passes when memory is full
      redis.call('HSET', q.config, 'round_held', now)
      return
    end
    if now - held_since < PATIENCE then return end
    redis.call('ZREMRANGEBYSCORE', q.rounds, '-inf', round)
  end
  redis.call('RENAME', q.next_round, q.messages)
  redis.call('HDEL', q.config, 'round_held')
  redis.call('HINCRBY', q.config, 'round', 1)
end

-- A member is ready: for the next round if he was visited in this one, else for this one.
local function join_round(q, element)
  local group, round = group_of(element), tonumber(redis.call('HGET', q.config, 'round'))
  if not round then -- an earlier version let `configure` remove it
    round = 1
    redis.call('HSET', q.config, 'round', round)
  end
  if redis.call('ZSCORE', q.rounds, group) then
    redis.call('ZADD', q.rounds, round + 1, group)
    redis.call('LPUSH', q.next_round, element)
    open_round(q)
  else
    redis.call('ZADD', q.rounds, round, group)
    redis.call('LPUSH', q.messages, element)
  end
end

-- A member rests, or is gone: nobody waits for him.
local function leave_round(q, group)
  if redis.call('ZREM', q.rounds, group) == 1 then open_round(q) end
end
