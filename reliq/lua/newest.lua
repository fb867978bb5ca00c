-- newest: replace messages that a consumer has claimed by newer ones of their dedup keys, which wait behind them.
--
-- KEYS  places, processing
-- ARGV  groups...
--       groups: of the claimed messages
-- Returns for each group the element in the processing list, which may be a newer one now; '' = there is none
-- The caller has not started these messages. A repeated call returns what the list has by then.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local processing = KEYS[14]
local PLACES = 1
-- end of the names
local q = places(PLACES)
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
    supersede(q, element)
  end
  answer[at] = newer or element or ''
end
return answer
