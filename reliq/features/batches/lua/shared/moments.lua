-- The counts of batches: in `followed`, under a blank and the id of the batch, how many of its messages are open, sent, dead
-- and cancelled. Requires `follow` and `element`.
makers[#makers + 1] = function()
  -- Add to the counts of a batch. They begin with its first message, and are deleted when the batch has ended. A message that
  -- was redriven since is counted only where it comes from another partition, so that open ones may be fewer than none.
  local function count_batch(q, batch, open, sent, dead, cancelled)
    local counts = redis.call('HGET', q.followed, ' ' .. batch)
    if not counts then
      if sent <= 0 then return end
      redis.call('HINCRBY', q.config, 'batched', 1)
      q.batched, q.follows, counts = true, true, '0 0 0 0' -- from here on, also in this call
    end
    local a, b, c, d = string.match(counts, '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')
    redis.call('HSET', q.followed, ' ' .. batch, string.format('%d %d %d %d', a + open, b + sent, c + dead, d + cancelled))
  end

  -- How many of these messages belong to each batch. `counted`: a text of batches and numbers, of messages that are not
  -- among these elements.
  local function by_batch(elements, counted)
    local found = {}
    for _, element in ipairs(elements) do
      local batch = batch_of(element)
      if batch then found[batch] = (found[batch] or 0) + 1 end
    end
    for batch, count in string.gmatch(counted or '', '(%S+) (%d+)') do found[batch] = (found[batch] or 0) + count end
    return found
  end

  return {
    check_entering = function(q, elements, counted)
      q.entering = by_batch(elements, counted)
      if next(q.entering) then redis.call('HLEN', q.followed) end
    end,

    have_entered = function(q, elements)
      for batch, count in pairs(q.entering or by_batch(elements)) do count_batch(q, batch, count, count, 0, 0) end
    end,

    have_left = function(q, elements, event, counted)
      local cancelled = event == 'acked' and 0 or 1
      if not q.batched then return end
      for batch, count in pairs(by_batch(counted and {} or elements, counted)) do
        count_batch(q, batch, -count, 0, 0, cancelled * count)
      end
    end,

    have_gone_home = function(q, elements) -- counted there
      if not q.batched then return end
      for batch, count in pairs(by_batch(elements)) do count_batch(q, batch, -count, -count, 0, 0) end
    end,

    has_died = function(q, element)
      local batch = q.batched and batch_of(element)
      if batch then count_batch(q, batch, -1, 0, 1, 0) end
    end,

    has_revived = function(q, element)
      local batch = q.batched and batch_of(element)
      if batch then count_batch(q, batch, 1, 0, -1, 0) end
    end,
  }
end
