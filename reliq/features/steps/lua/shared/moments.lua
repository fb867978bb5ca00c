-- The record of a message (lua/shared/records.lua of the slice) goes when the message leaves the queue. Of one that had signals, or waited for one, the
-- head stays as `ended`, so that a late signal is refused; so many of the latest ones are kept: under two line feeds and a number are their
-- heads, under one line feed the number of the latest. Requires `follow` and `element`.
local forget_record, remember_end
makers[#makers + 1] = function()
  local MOST_ENDED = 10000

  local function field_of(element)
    return '\n' .. id_of(element)
  end

  local function delete_fields(q, fields)
    for from = 1, #fields, 1000 do
      redis.call('HDEL', q.followed, unpack(fields, from, math.min(from + 999, #fields)))
    end
  end

  -- Keep the head of a message that has ended; returns how many heads went for it.
  local function note_ended(q, field)
    local slot = '\n\n' .. redis.call('HINCRBY', q.followed, '\n', 1) % MOST_ENDED
    local former, gone = redis.call('HGET', q.followed, slot), 0
    if former and redis.call('HGET', q.followed, former) == 'ended' then gone = redis.call('HDEL', q.followed, former) end
    redis.call('HSET', q.followed, slot, field, field, 'ended')
    return gone
  end

  local function forget(q, field, head, ended)
    local count, names = string.match(head, '^(%d+) %d+ %S+(.*)$')
    local fields, gone = {field}, 1
    for number = 1, count do fields[#fields + 1] = field .. '\n' .. string.format('%d', number) end
    for name in string.gmatch(names, '\n([^\n]+)') do fields[#fields + 1] = field .. '\n!' .. name end
    delete_fields(q, fields)
    if ended and names ~= '' then gone = note_ended(q, field) end
    if redis.call('HINCRBY', q.config, 'recorded', 0 - gone) <= 0 then redis.call('HDEL', q.config, 'recorded') end
  end

  forget_record = function(q, field, head) forget(q, field, head) end

  -- Keep the end of a message that has left while it waited for a signal, whether it had any or not.
  remember_end = function(q, element)
    local field = field_of(element)
    if redis.call('HGET', q.followed, field) == 'ended' then return end
    redis.call('HINCRBY', q.config, 'recorded', 1 - note_ended(q, field))
  end

  local function forget_all(q, fields, ended)
    for from = 1, #fields, 1000 do
      local to = math.min(from + 999, #fields)
      local heads = redis.call('HMGET', q.followed, unpack(fields, from, to))
      for at = from, to do
        local head = heads[at - from + 1]
        if head and head ~= 'ended' then forget(q, fields[at], head, ended) end
      end
    end
  end

  local function all_leave(q, elements, ended)
    if not q.recorded then return end
    local fields = {}
    for at, element in ipairs(elements) do fields[at] = field_of(element) end
    forget_all(q, fields, ended)
  end

  return {
    have_left = function(q, elements) all_leave(q, elements, true) end,
    have_gone_home = function(q, elements) all_leave(q, elements, false) end,
    are_discarded = function(q, ids)
      if not q.recorded then return end
      local fields = {}
      for at, id in ipairs(ids) do fields[at] = '\n' .. id end
      forget_all(q, fields, true)
    end,

    was_visited = function(q, element) forget_all(q, {field_of(element)}, false) end,

    -- Steps that have failed for good run again after a redrive.
    has_revived = function(q, element)
      local field = field_of(element)
      local head = q.recorded and redis.call('HGET', q.followed, field)
      for number = 1, tonumber(head and string.match(head, '^%d+ ') or 0) do
        local entry = redis.call('HGET', q.followed, field .. '\n' .. number)
        if entry and string.find(entry, '^[rfb]') then
          redis.call('HSET', q.followed, field .. '\n' .. number, 'x' .. string.match(entry, '^.([^\n]*\n)'))
        end
      end
    end,
  }
end
