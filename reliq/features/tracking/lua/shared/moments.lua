-- The index and the history of messages. `followed` has for each message of a queue with `track` where it entered the ready messages:
-- a number that grows, or the beginning of its member of `waiting`. Requires `follow`, `now` and `element`.
makers[#makers + 1] = function()
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

  local function note_all(q, event, elements)
    for _, element in ipairs(q.history_for and elements or {}) do note(q, event, element) end
  end

  local function track(q, element, where)
    if q.track then redis.call('HSET', q.followed, id_of(element), where) end
  end

  local function track_ready(q, element)
    if q.track then track(q, element, redis.call('HGET', q.counters, 'enqueued') or 0) end
  end

  -- Give each message the number of its place among all that have entered.
  local function track_all(q, elements)
    local first, pairs_of, where = tonumber(redis.call('HGET', q.counters, 'enqueued') or 0), {}, nil
    for place, element in ipairs(elements) do
      if place % SAME_PLACE == 1 then where = string.format('%.0f', first + place) end
      pairs_of[2 * place - 1], pairs_of[2 * place] = id_of(element), where
    end
    for from = 1, #pairs_of, 1000 do
      redis.call('HSET', q.followed, unpack(pairs_of, from, math.min(from + 999, #pairs_of)))
    end
  end

  local function forget(q, elements, event)
    if q.track then
      local ids = ids_of(elements)
      for from = 1, #ids, 1000 do
        redis.call('HDEL', q.followed, unpack(ids, from, math.min(from + 999, #ids)))
      end
    end
    note_all(q, event, elements)
  end

  return {
    note = note,
    track = track,
    track_ready = track_ready,
    have_left = forget,

    have_entered = function(q, elements)
      if q.track then track_all(q, elements) end
      note_all(q, 'enqueued', elements)
    end,

    have_gone_home = function(q, elements) forget(q, elements, 'sent_home') end,

    has_died = function(q, element, counter) forget(q, {element}, counter) end,

    has_revived = function(q, element)
      track_ready(q, element)
      note(q, 'redriven', element)
    end,
  }
end
