-- The head of a stream of output (lua/shared/heads.lua of the slice) goes when its message leaves the queue. The stream of a message that
-- was handled stays until it expires; that of another one is to be deleted: `followed` has a ring (`ring`)
-- of tabs with its id and the ms at which it left. Requires `follow`, `now` and `element`.
makers[#makers + 1] = function()
  local function forget(q, ids, keeps)
    local gone = 0
    for from = 1, #ids, 1000 do
      local fields = {}
      for at = from, math.min(from + 999, #ids) do fields[#fields + 1] = '\t' .. ids[at] end
      for at, head in ipairs(redis.call('HMGET', q.followed, unpack(fields))) do
        if head and redis.call('HDEL', q.followed, fields[at]) == 1 then
          gone = gone + 1
          if not keeps then add_note(q.followed, q.config, '\t', 'dropped', ids[from + at - 1] .. ' ' .. string.format('%.0f', now_ms())) end
        end
      end
    end
    if gone > 0 and redis.call('HINCRBY', q.config, 'emitted', -gone) <= 0 then redis.call('HDEL', q.config, 'emitted') end
  end

  local function now_is(q, element, state)
    local field = '\t' .. id_of(element)
    local head = q.emitted and redis.call('HGET', q.followed, field)
    if head then redis.call('HSET', q.followed, field, string.match(head, '^.* ') .. state) end
  end

  return {
    have_left = function(q, elements, event)
      if q.emitted then forget(q, ids_of(elements), event == 'acked') end
    end,
    have_gone_home = function(q, elements)
      if q.emitted then forget(q, ids_of(elements), false) end
    end,
    are_discarded = function(q, ids)
      if q.emitted then forget(q, ids, false) end
    end,
    has_died = function(q, element) now_is(q, element, 'dead') end,
    has_revived = function(q, element) now_is(q, element, 'open') end,
  }
end
