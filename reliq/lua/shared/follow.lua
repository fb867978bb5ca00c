-- Note what happens to messages, in queues where config asks for it: `track` has an index of all messages, `history` a
-- stream of their transitions, and `batched` counts the batches with messages here. Requires `now` and `element`.
--
-- `followed` has for each tracked message where it entered the ready messages: a number that grows, or the beginning of its
-- member of `waiting`; and, under a blank and the batch, the counts of a batch: open, sent, dead, cancelled.

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

-- Add to the counts of a batch. They begin with its first message, and are deleted when the batch has ended.
local function count_batch(q, batch, open, sent, dead, cancelled)
  local counts = redis.call('HGET', q.followed, ' ' .. batch)
  if not counts then
    if sent == 0 then return end
    redis.call('HINCRBY', q.config, 'batched', 1)
    q.batched, q.follows, counts = true, true, '0 0 0 0' -- from here on, also in this call
  end
  local a, b, c, d = string.match(counts, '^(%d+) (%d+) (%d+) (%d+)$')
  redis.call('HSET', q.followed, ' ' .. batch, string.format('%d %d %d %d', a + open, b + sent, c + dead, d + cancelled))
end

-- How many of these messages belong to each batch.
local function by_batch(elements)
  local found
  for _, element in ipairs(elements) do
    local batch = batch_of(element)
    if batch then
      found = found or {}
      found[batch] = (found[batch] or 0) + 1
    end
  end
  return found or {}
end

-- Note where a message is now, if the queue tracks its messages.
local function track(q, element, where)
  if q.track then redis.call('HSET', q.followed, id_of(element), where) end
end

local function track_ready(q, element)
  if q.track then track(q, element, redis.call('HGET', q.counters, 'enqueued') or 0) end
end

-- Count the new messages by their batches. Fails before the first write if the counts have a foreign type. `counted`: a text
-- of batches and numbers, of messages that are not among these elements.
local function check_batches(q, elements, counted)
  q.entering = by_batch(elements)
  for batch, count in string.gmatch(counted or '', '(%S+) (%d+)') do
    q.entering[batch] = (q.entering[batch] or 0) + count
  end
  if next(q.entering) then redis.call('HLEN', q.followed) end
end

-- Note new messages, before they are put into their places.
local function have_entered(q, elements)
  for batch, count in pairs(q.entering or by_batch(elements)) do count_batch(q, batch, count, count, 0, 0) end
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

-- Note messages that have left the queue for good. `event`: acked, cancelled, purged, replaced, ... `counted`: their batches
-- have counted them.
local function have_left(q, elements, event, counted)
  if not q.follows or #elements == 0 then return end
  local cancelled = event == 'acked' and 0 or 1
  if q.batched and not counted then
    for batch, count in pairs(by_batch(elements)) do count_batch(q, batch, -count, 0, 0, cancelled * count) end
  end
  if q.track then
    local ids = {}
    for place, element in ipairs(elements) do ids[place] = id_of(element) end
    for from = 1, #ids, 1000 do
      redis.call('HDEL', q.followed, unpack(ids, from, math.min(from + 999, #ids)))
    end
  end
  for _, element in ipairs(q.history_for and elements or {}) do note(q, event, element) end
end

-- Note a message that has become a dead letter.
local function has_died(q, element, counter)
  if not q.follows then return end
  local batch = q.batched and batch_of(element)
  if batch then count_batch(q, batch, -1, 0, 1, 0) end
  if q.track then redis.call('HDEL', q.followed, id_of(element)) end
  note(q, counter, element)
end

-- Note a dead letter that has come back.
local function has_revived(q, element)
  if not q.follows then return end
  local batch = q.batched and batch_of(element)
  if batch then count_batch(q, batch, 1, 0, -1, 0) end
  track_ready(q, element)
  note(q, 'redriven', element)
end
