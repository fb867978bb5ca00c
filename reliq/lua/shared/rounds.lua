-- Rounds of a cycle: a visited member enters `next_round`; when all members are back from this round, that list becomes
-- `messages`. So no member is ever visited two times more than another. Requires `now` and `element`.
--
-- `rounds` has the round of each member that is ready or being visited; config has the current round. A resting member is
-- in no round: its delay decides when it returns, and the round does not wait for it.

local PATIENCE = 5000 -- ms; a visit that delays the next round for longer leaves the round

-- Whether this is the current message of a member. The message of a removed member is not, even if the member was added
-- again with another message.
local function is_member(q, element)
  local entry = is_cyclic(element) and redis.call('HGET', q.cycle, group_of(element))
  return entry and string.match(entry, '^%S+') == id_of(element)
end

-- Begin the next round if all members are back from this one.
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

-- Make a member ready: for the next round if it was visited in this one, else for this one.
local function join_round(q, element)
  local group, round = group_of(element), tonumber(redis.call('HGET', q.config, 'round'))
  if not round then -- an earlier version let `configure` remove it
    round = 1
    redis.call('HSET', q.config, 'round', round)
    q.cyclic = true
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

-- Take a resting or removed member out of the round: the next round does not wait for it.
local function leave_round(q, group)
  if redis.call('ZREM', q.rounds, group) == 1 then open_round(q) end
end
