-- Where a message goes, by its priority, its key, and whether it goes round. Needs `element` and `rounds` in front.

-- Refuse what a message that leaves may touch and that is of a foreign type, before the first write. Most queues have
-- neither keys nor priorities: one EXISTS then stands for eight reads. `q.keyed`: a message holds a key; else no message
-- has to be asked for its key.
local function check_exits(q)
  redis.call('HLEN', q.counters)
  redis.call('HLEN', q.config)
  q.keyed = false
  if redis.call('EXISTS', q.high, q.low, q.next_round, q.waiting, q.rounds, q.active, q.cycle) == 0 then return end
  for _, list in ipairs({q.messages, q.high, q.low, q.next_round}) do redis.call('LLEN', list) end
  for _, zset in ipairs({q.waiting, q.rounds}) do redis.call('ZCARD', zset) end
  redis.call('HLEN', q.cycle)
  q.keyed = redis.call('HLEN', q.active) > 0
end

-- A queue's keys by name, unchecked; they follow each other in KEYS, the first one at `at`.
local function named_places(at)
  return {
    messages = KEYS[at], high = KEYS[at + 1], low = KEYS[at + 2], waiting = KEYS[at + 3], active = KEYS[at + 4],
    cycle = KEYS[at + 5], next_round = KEYS[at + 6], rounds = KEYS[at + 7], counters = KEYS[at + 8],
    config = KEYS[at + 9],
  }
end

-- The same, each of the right type.
local function places(at)
  local q = named_places(at)
  redis.call('LLEN', q.messages)
  check_exits(q)
  return q
end

-- Ready now. Where `messages` is empty everything goes there, whatever its priority: idle consumers wait on that list,
-- so it must not be empty while another one is not.
local function make_ready(q, element)
  if is_member(q, element) then return join_round(q, element) end
  local priority = priority_of(element)
  if not priority or redis.call('LLEN', q.messages) == 0 then return redis.call('LPUSH', q.messages, element) end
  redis.call('LPUSH', q[priority], element)
  redis.call('HSET', q.config, 'prioritised', 1)
end

-- A message that is new here: ready if it has no key or the key is free; else behind those that wait for it, also when
-- a message with the same id holds the key. What waits for all keys lies in one zset, in the order of its members: group,
-- then turn, then the element.
local function enter(q, element)
  local group = group_of(element)
  if not group or redis.call('HSETNX', q.active, group, id_of(element)) == 1 then return make_ready(q, element) end
  local turn = redis.call('HINCRBY', q.counters, 'ordered', 1)
  redis.call('ZADD', q.waiting, 0, group .. string.format('%016.0f', turn) .. element)
end

-- A message that comes back: ready if it still holds its key.
local function place(q, element)
  local group = group_of(element)
  if group and redis.call('HGET', q.active, group) == id_of(element) then return make_ready(q, element) end
  enter(q, element)
end

-- The key goes to the message that waits longest for it, which is ready now. False where none waits.
local function pass_on(q, group)
  local first = redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
  if not first then return false end
  local element = string.sub(first, 33)
  redis.call('ZREM', q.waiting, first)
  redis.call('HSET', q.active, group, id_of(element))
  make_ready(q, element)
  return true
end

-- A message has left the queue: if it went round for a member, the member has left the cycle.
local function leave_cycle(q, element)
  if not is_member(q, element) then return end
  redis.call('HDEL', q.cycle, group_of(element))
  leave_round(q, group_of(element))
end

-- A message has left the queue: the next one of its key is ready, or its key is free. It may be one without a key, and one
-- that does not hold it, so this may be repeated.
local function gone(q, element)
  local group = group_of(element)
  if not group then return end
  leave_cycle(q, element)
  if redis.call('HGET', q.active, group) == id_of(element) and not pass_on(q, group) then
    redis.call('HDEL', q.active, group)
  end
end
