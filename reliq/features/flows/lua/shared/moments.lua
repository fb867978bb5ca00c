-- A message that was handled releases those of its flow that wait for it alone. In `followed` are under two vertical tabs and the id of a
-- message the groups of those that wait for it, 16 bytes each, and under one and a group for how many messages it waits still.
-- Requires `follow` and `element`; `place` sets `release_line`.
do
  local function is_over(q, groups)
    for at = 1, #groups, GROUP do
      local group = string.sub(groups, at, at + GROUP - 1)
      local field = '\v' .. group
      if redis.call('HINCRBY', q.followed, field, -1) <= 0 then
        redis.call('HDEL', q.followed, field)
        release_line(q, group)
      end
    end
  end

  parts[#parts + 1] = {
    have_left = function(q, elements, event)
      if not q.flowing or event ~= 'acked' then return end
      local gone = 0
      for from = 1, #elements, 1000 do
        local fields = {}
        for at = from, math.min(from + 999, #elements) do fields[#fields + 1] = '\v\v' .. id_of(elements[at]) end
        for at, groups in ipairs(redis.call('HMGET', q.followed, unpack(fields))) do
          if groups then
            redis.call('HDEL', q.followed, fields[at])
            is_over(q, groups)
            gone = gone + 1
          end
        end
      end
      if gone > 0 and redis.call('HINCRBY', q.config, 'flowing', -gone) <= 0 then redis.call('HDEL', q.config, 'flowing') end
    end,
  }
end
