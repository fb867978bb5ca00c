-- promote: make due delayed messages ready, in the order of their due times.
--
-- KEYS  places, delayed, index
-- ARGV  limit
--       limit: messages to promote at most
-- Returns {n promoted, ms until the next is due or -1}
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index = KEYS[14], KEYS[15]
local limit = ARGV[1]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = now_ms()
redis.call('HLEN', index) -- a wrong type is refused here, before the first write
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(' .. string.format('%.0f', now + 1), 'LIMIT', 0, limit)
if #due > 0 then
  local ids, plain = ids_of(due), {}
  redis.call('ZREM', delayed, unpack(due))
  for at, element in ipairs(due) do
    local group = group_of(element)
    if group or priority_of(element) or q.flowing or cost_of(element) ~= 1 then
      put_back(q, element)
    else
      plain[#plain + 1] = element
      track_ready(q, element)
    end
  end
  if #plain > 0 then redis.call('LPUSH', q.messages, unpack(plain)) end
  redis.call('HDEL', index, unpack(ids))
  redis.call('HINCRBY', q.counters, 'promoted', #due)
end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
return {#due, first[2] and math.max(0, math.floor(first[2]) - now) or -1}
