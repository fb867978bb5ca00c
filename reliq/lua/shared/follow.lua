-- The moments of a message: it enters a queue, leaves it, dies, comes back. Features note what happens to messages, in queues
-- where config asks for it: `track` has an index of all messages, `history` a stream of their transitions, `batched` counts the
-- batches with messages here. A feature's part is in lua/shared/moments.lua of its slice, which the script gets after this file;
-- it has functions by the names of the moments that concern it. Requires `now` and `element`.
--
-- `followed` has for each tracked message where it entered the ready messages: a number that grows, or the beginning of its
-- member of `waiting`; and, under a blank, what a feature counts.

local parts = {}

local function each_part(moment, q, ...)
  for _, part in ipairs(parts) do
    if part[moment] then part[moment](q, ...) end
  end
end

local MOST_EVENTS = 1000000 -- of a history
local SAME_PLACE = 50 -- messages of one call that have one number in the index: a search looks around it

-- Sets which events of the history are too old, or too many.
local function bound_history(q)
  q.limit, q.bound = 'MINID', string.format('%.0f', now_ms() - q.history_for * 1000)
  if redis.call('XLEN', q.history) >= MOST_EVENTS then q.limit, q.bound = 'MAXLEN', MOST_EVENTS end
end

-- Note an event. The bounds are read, and the history prolonged, once a call: a call may note many.
local function note(q, event, element, detail)
  if not q.history_for then return end
  local first = not q.bound
  if first then bound_history(q) end
  redis.call('XADD', q.history, q.limit, '~', q.bound, '*', 'id', id_of(element), 'event', event, 'detail', detail or '')
  if first then redis.call('PEXPIRE', q.history, string.format('%.0f', q.history_for * 1000 + 60000)) end
end

-- Note where a message is now, if the queue tracks its messages.
local function track(q, element, where)
  if q.track then redis.call('HSET', q.followed, id_of(element), where) end
end

local function track_ready(q, element)
  if q.track then track(q, element, redis.call('HGET', q.counters, 'enqueued') or 0) end
end

-- Look at new messages. Fails before the first write if a key with notes of them has a foreign type. `counted`: a text of
-- batches and numbers, of messages that are not among these elements.
local function check_entering(q, elements, counted)
  each_part('check_entering', q, elements, counted)
end

-- Note new messages, before they are put into their places.
local function have_entered(q, elements)
  each_part('have_entered', q, elements)
  if not q.follows then return end
  if q.track then
    local first, pairs_of, where = tonumber(redis.call('HGET', q.counters, 'enqueued') or 0), {}, nil
    for place, element in ipairs(elements) do
      if place % SAME_PLACE == 1 then where = string.format('%.0f', first + place) end
      pairs_of[2 * place - 1], pairs_of[2 * place] = id_of(element), where
    end
    for from = 1, #pairs_of, 1000 do
      redis.call('HSET', q.followed, unpack(pairs_of, from, math.min(from + 999, #pairs_of)))
    end
  end
  for _, element in ipairs(q.history_for and elements or {}) do note(q, 'enqueued', element) end
end

local function forget(q, elements, event)
  if q.track then
    local ids = {}
    for place, element in ipairs(elements) do ids[place] = id_of(element) end
    for from = 1, #ids, 1000 do
      redis.call('HDEL', q.followed, unpack(ids, from, math.min(from + 999, #ids)))
    end
  end
  for _, element in ipairs(q.history_for and elements or {}) do note(q, event, element) end
end

-- Note messages that have left the queue for good. `event`: acked, cancelled, purged, replaced, ... `counted`: a text of batches
-- and numbers, which the caller knows of these messages, or instead of them.
local function have_left(q, elements, event, counted)
  if not q.follows then return end
  each_part('have_left', q, elements, event, counted)
  forget(q, elements, event)
end

-- Note messages that a monitor has enqueued in another partition, where they have entered.
local function have_gone_home(q, elements)
  if not q.follows then return end
  each_part('have_gone_home', q, elements)
  forget(q, elements, 'sent_home')
end

-- Note a message that has become a dead letter.
local function has_died(q, element, counter)
  if not q.follows then return end
  each_part('has_died', q, element)
  if q.track then redis.call('HDEL', q.followed, id_of(element)) end
  note(q, counter, element)
end

-- Note a dead letter that has come back.
local function has_revived(q, element)
  if not q.follows then return end
  each_part('has_revived', q, element)
  track_ready(q, element)
  note(q, 'redriven', element)
end
