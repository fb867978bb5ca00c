-- newest: replace messages that a consumer has claimed by newer ones of their dedup keys, which wait behind them.
--
-- KEYS  places, processing, flow
-- ARGV  groups...
--       groups: of the claimed messages
-- Returns for each group the element in the processing list, which may be a newer one now; '' = there is none
-- The rate of the queue gets back what the claim has taken for the older one, and gives what the newer one costs.
-- The caller has not started these messages. A repeated call returns what the list has by then.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, flow
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, flow = KEYS[14], KEYS[15]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = exact_now_ms()
redis.call('HLEN', flow) -- a wrong type is refused here, before the first write
local bucket = bucket_of(unpack(redis.call('HMGET', q.config, 'rate', 'burst')))
local held = {}
for _, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do held[group_of(element) or ''] = element end

local answer = {}
for at, group in ipairs(ARGV) do
  local element = held[group]
  local newer = element and next_in_line(q, group)
  if newer then
    redis.call('LREM', processing, 1, element)
    redis.call('LPUSH', processing, newer)
    redis.call('HSET', q.active, group, id_of(newer))
    local more = cost_of(newer) - cost_of(element)
    if bucket and more ~= 0 then
      note_full_at(flow, corrected(bucket, tonumber(redis.call('HGET', flow, 'full_at') or nil), now, more))
    end
    supersede(q, element)
  end
  answer[at] = newer or element or ''
end
return answer
