-- Deduplication keys: each has the id of its first message and a digest of its body, for its window. Requires `partition`.

local SLACK = 60000 -- ms by which `dedup_until` may be late: it is written once a minute at most

-- Store a deduplication key. A partition that is closed is kept until the last of its keys has expired (reliq.protocol.resizing).
local function store_dedup(q, key, value, window, now)
  redis.call('SET', key, value, 'PX', window)
  if not is_partition(q.config) then return end
  q.dedup_until = q.dedup_until or tonumber(redis.call('HGET', q.config, 'dedup_until') or 0)
  if now + window > q.dedup_until then
    q.dedup_until = now + window + SLACK
    redis.call('HSET', q.config, 'dedup_until', string.format('%.0f', q.dedup_until))
  end
end
