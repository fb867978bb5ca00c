-- Choose the list for a ready message by priority, key and cycle membership. Requires `element`, `bodies`,
-- `rounds`, `lanes`, `homes` and `follow`.
-- names of the keys and arguments (tools/generate_scripts.py)
local function named_places(at) -- types not checked
  return {
    messages = KEYS[at], high = KEYS[at + 1], low = KEYS[at + 2], waiting = KEYS[at + 3], active = KEYS[at + 4],
    cycle = KEYS[at + 5], next_round = KEYS[at + 6], rounds = KEYS[at + 7], counters = KEYS[at + 8],
    config = KEYS[at + 9], bodies = KEYS[at + 10], followed = KEYS[at + 11], history = KEYS[at + 12],
  }
end
-- end of the names

-- Fail before the first write if a key that a departing message may touch has a foreign type. Most queues have neither
-- keys nor priorities: one EXISTS replaces eight reads there. Sets `q.keyed`: some message holds an ordering key, `q.apart`:
-- some body is in `bodies`, and `q.follows`: what happens to messages is noted; if all are false, no element needs to be
-- searched for what leaves with it.
local function check_exits(q)
  redis.call('HLEN', q.counters)
  local settings = redis.call('HMGET', q.config, 'track', 'history', 'batched', 'homes', 'recorded', 'emitted', 'flowing', 'concurrency',
    'paused', 'limited', 'prioritised', 'round')
  q.track, q.history_for, q.batched, q.homes, q.recorded, q.emitted, q.flowing = unpack(settings, 1, 7)
  q.concurrency = tonumber(settings[8])
  q.paused, q.limited, q.prioritised, q.cyclic = unpack(settings, 9, 12)
  q.follows = q.track or q.history_for or q.batched or q.recorded or q.emitted or q.flowing
  if q.follows then
    redis.call('HLEN', q.followed)
    redis.call('XLEN', q.history)
  end
  q.apart = redis.call('HLEN', q.bodies) > 0
  q.keyed = false
  if redis.call('EXISTS', q.high, q.low, q.next_round, q.waiting, q.rounds, q.active, q.cycle) == 0 then return end
  for _, list in ipairs({q.messages, q.high, q.low, q.next_round}) do redis.call('LLEN', list) end
  for _, zset in ipairs({q.waiting, q.rounds}) do redis.call('ZCARD', zset) end
  redis.call('HLEN', q.cycle)
  q.keyed = redis.call('HLEN', q.active) > 0
end

-- The keys of a queue by name, types checked. They are consecutive in KEYS; the first is at `at`.
local function places(at)
  local q = named_places(at)
  redis.call('LLEN', q.messages)
  check_exits(q)
  return q
end

-- How many entries of the ready lists are places of cancelled messages.
local function blank_places(q)
  local counts = redis.call('HMGET', q.counters, 'blanks', 'blanks_passed')
  return math.max(0, (tonumber(counts[1]) or 0) - (tonumber(counts[2]) or 0))
end

-- Note a message with a cost of its own before a claim can reach it: claims weigh messages only where one has come.
local function note_cost(q, element)
  if cost_of(element) ~= 1 then redis.call('HSET', q.config, 'weighted', 1) end
end

-- Make a message ready. While `messages` is empty every message goes there, regardless of priority: idle consumers wait
-- on that list, so it must not be empty while another list has messages.
local function make_ready(q, element)
  track_ready(q, element)
  note_cost(q, element)
  if is_member(q, element) then return join_round(q, element) end
  local priority = priority_of(element)
  if not priority or redis.call('LLEN', q.messages) == 0 then return redis.call('LPUSH', q.messages, element) end
  redis.call('LPUSH', q[priority], element)
  redis.call('HSET', q.config, 'prioritised', 1)
  q.prioritised = true
end

-- The line of a key: one zset has the waiting messages of all keys, ordered by member: group, turn, element. The turn of a
-- message that is `away`, that is to be taken to another partition, begins with a tilde: it comes after all digits.
local function join_line(q, group, element, away)
  note_cost(q, element)
  local turn = string.format(away and '~%015.0f' or '%016.0f', redis.call('HINCRBY', q.counters, 'ordered', 1))
  local line = group .. turn
  redis.call('ZADD', q.waiting, 0, line .. element)
  track(q, element, line)
end

-- Take the first message out of a line; nil if none waits, or only such as are to be taken to another partition.
local function next_in_line(q, group)
  local first = first_in_line(q, group)
  if not first or is_stray(first) then return nil end
  redis.call('ZREM', q.waiting, first)
  return element_in_line(first)
end

-- Delete the body of a message that was deleted, if it is apart.
local function drop_body(q, element)
  if q.apart then delete_bodies(q.bodies, {element}) end
end

-- Delete what is left of a message that a newer one has replaced.
local function supersede(q, element)
  drop_body(q, element)
  have_left(q, {element}, 'replaced')
  redis.call('HINCRBY', q.counters, 'replaced', 1)
end

-- Whether a new message has to wait even if no message holds its key: because other messages of the key wait, or because the
-- former home of the key may still have some. Limit keys have no line in a queue without limits for keys.
local function waits_in_line(q, group, element, asked)
  if not q.homes or is_latest(group) or is_laned(element) and not slots_of(q, group) then return false end
  return first_in_line(q, group) ~= nil or not is_cyclic(element) and is_arriving(q, group, asked)
end

-- Add a new message: ready if it has no key or its key is free; otherwise after the messages that wait for the key, also
-- when a message with the same id holds it. Where the latest wins it replaces the one that waits. If the key has its home
-- in another partition, it waits in line: a monitor takes it there. `asked`: the version of the layout by which the former
-- home of its key has no other message of it; nil: it waits in line while that is not known.
enter = function(q, element, asked)
  if is_held_back(q, element) then return end
  local group = group_of(element)
  if not group then return make_ready(q, element) end
  if is_away(q, group, element) then return join_line(q, group, element, true) end
  if waits_in_line(q, group, element, asked) then return join_line(q, group, element) end
  local free
  if is_laned(element) then
    free = take_slot(q, group, id_of(element))
  else
    free = redis.call('HSETNX', q.active, group, id_of(element)) == 1
  end
  if free then return make_ready(q, element) end
  local older = is_latest(group) and next_in_line(q, group)
  if older then supersede(q, older) end
  join_line(q, group, element)
end

-- Add a returning message: ready if it still holds its key.
local function put_back(q, element)
  local group = group_of(element)
  if group and not is_laned(element) and redis.call('HGET', q.active, group) == id_of(element)
      or group and has_slot(q, group, id_of(element)) then
    return make_ready(q, element)
  end
  enter(q, element)
end

-- Give the key to the message that has waited longest for it, and make that message ready. Returns false if none waits.
local function pass_on(q, group)
  local element = next_in_line(q, group)
  if not element then return false end
  redis.call('HSET', q.active, group, id_of(element))
  make_ready(q, element)
  return true
end

-- Let the first ones of the line of a limit key be ready, as many as the key has free slots. `held`: those in use.
local function fill_slots(q, group, held)
  local most = slots_of(q, group) or LINE_STEP -- the queue has no such limits any more: its lines end
  while held < most do
    local following = next_in_line(q, group)
    if not following then break end
    held = held + keep_slot(q, group, id_of(following))
    make_ready(q, following)
  end
  note_slots(q, group, held)
end

-- Release the slot of a message with a limit key, if it has one: the next ones of its line become ready.
local function release_slot(q, element)
  local group = group_of(element)
  local held = give_up_slot(q, group, id_of(element))
  if held then fill_slots(q, group, held) end
end

-- Remove the member of a cycle whose message has left the queue.
local function leave_cycle(q, element)
  if not is_member(q, element) then return end
  redis.call('HDEL', q.cycle, group_of(element))
  leave_round(q, group_of(element))
end

-- Release the key of a message that has left the queue: the next message of the key becomes ready, or the key is free.
-- Does nothing for a message that has no key or does not hold it, so a repeated call is harmless.
local function release_key(q, element)
  local group = group_of(element)
  if not group then return end
  if is_laned(element) then return release_slot(q, element) end
  leave_cycle(q, element)
  if redis.call('HGET', q.active, group) == id_of(element) and not pass_on(q, group) then
    redis.call('HDEL', q.active, group)
  end
end

-- Delete what belongs to a message that was deleted: its body and its hold on its key.
local function leave_queue(q, element)
  drop_body(q, element)
  release_key(q, element)
end
