-- Where a message goes, by what its element says at its very end (docs/wire-format.md): there a script finds it without
-- decoding. Needs `index` in front.

-- A queue's keys by name; they follow each other in KEYS, the first one at `at`.
local function places(at)
  return {
    messages = KEYS[at], high = KEYS[at + 1], low = KEYS[at + 2], waiting = KEYS[at + 3], active = KEYS[at + 4],
    cycle = KEYS[at + 5], counters = KEYS[at + 6], config = KEYS[at + 7],
  }
end

-- The digest of the key that orders a message; nil without one.
local function group_of(element)
  if string.sub(element, -23, -17) == '\165group\176' then return string.sub(element, -16) end
end

local function priority_of(element)
  local last = group_of(element) and -24 or -1
  if string.sub(element, last - 13, last) == '\168priority\164high' then return 'high' end
  if string.sub(element, last - 12, last) == '\168priority\163low' then return 'low' end
end

-- Ready now. Where `messages` is empty everything goes there, whatever its priority: idle consumers wait on that list,
-- so it must not be empty while another one is not.
local function make_ready(q, element)
  local priority = priority_of(element)
  if not priority or redis.call('LLEN', q.messages) == 0 then return redis.call('LPUSH', q.messages, element) end
  redis.call('LPUSH', q[priority], element)
  redis.call('HSET', q.config, 'prioritised', 1)
end

-- Ready if nobody holds its key, else behind those that wait for it. What waits for all keys lies in one zset, in the
-- order of its members: group, then turn, then the element.
local function enter(q, group, id, element)
  if redis.call('HSETNX', q.active, group, id) == 1 then return make_ready(q, element) end
  local turn = redis.call('HINCRBY', q.counters, 'ordered', 1)
  redis.call('ZADD', q.waiting, 0, group .. string.format('%016.0f', turn) .. element)
end

-- Ready, or into the line of its key unless it holds that.
local function place(q, id, element)
  local group = group_of(element)
  if not group or redis.call('HGET', q.active, group) == id then return make_ready(q, element) end
  enter(q, group, id, element)
end

-- What waits longest for a key: the member of the zset; nil where nothing waits.
local function first_waiting(q, group)
  return redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
end

-- A message has left the queue: the next one of its key is ready, or its key is free. Does nothing for a message that
-- does not hold its key, so it may be repeated.
local function advance(q, group, id)
  if redis.call('HGET', q.active, group) ~= id then return end
  local first = first_waiting(q, group)
  if not first then
    redis.call('HDEL', q.active, group)
    redis.call('HDEL', q.cycle, group)
    return
  end
  local element = string.sub(first, 33)
  redis.call('ZREM', q.waiting, first)
  redis.call('HSET', q.active, group, id_of(element))
  make_ready(q, element)
end

-- The same for messages that may have no key.
local function gone(q, element)
  local group = group_of(element)
  if group then advance(q, group, id_of(element)) end
end
