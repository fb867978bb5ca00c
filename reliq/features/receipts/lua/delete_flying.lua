-- delete_flying: delete messages in flight, all of the call or none: nearly every delete, kept as cheap as possible.
--
-- KEYS  messages, waiting, active, cycle, counters, config, bodies, received, receipts, early
-- ARGV  late: flag, names...
--       late: also one whose time is over, as long as no other consumer has taken it
-- Returns 1; 0: nothing was done, and the caller must use `delete_received`, because one of them is not in flight under its name, the
--         time of a message is over, or its queue notes what happens to messages
-- uses: now, element, lanes, flights
-- names of the keys and arguments (tools/generate_scripts.py)
local messages, waiting, active, cycle, counters, config = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local bodies, received, receipts, early = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local late = ARGV[1] == '1'
local NAMES = 2
-- end of the names
local names, ids, is_twice, seen = {unpack(ARGV, NAMES)}, {}, false, {}
for at, name in ipairs(names) do
  ids[at] = id_of(name)
  is_twice, seen[ids[at]] = is_twice or seen[ids[at]], true
end
redis.call('ZCARD', received) -- wrong types are refused here, before the first write
redis.call('HLEN', counters)
local apart = redis.call('HLEN', bodies) > 0
local follows = redis.call('HMGET', config, 'track', 'history', 'batched', 'recorded', 'emitted', 'flowing')
for place = 1, 6 do is_twice = is_twice or follows[place] end
if is_twice then return 0 end

local references, groups, gone_of = {}, {}, {}
for at, record in ipairs(redis.call('HMGET', receipts, unpack(ids))) do
  if not is_named(record, names[at]) then return 0 end
  local element = string.sub(record, #FIRST_TURN + 1)
  if apart then references[#references + 1] = body_of(element) end
  local group = group_of(element)
  if group then
    if not gone_of[group] then groups[#groups + 1], gone_of[group] = group, {} end
    table.insert(gone_of[group], string.sub(record, 1, #FIRST_TURN))
  end
end
if not late and redis.call('ZRANGEBYSCORE', received, '-inf', now_ms(), 'LIMIT', 0, 1)[1] then return 0 end

-- What becomes of the keys of the messages: others of a key stay in flight, or the next one of its line is ready, or it is free.
local held, free, following, ready = {}, {}, {}, {}
if #groups > 0 then
  redis.call('LLEN', messages)
  if redis.call('HLEN', cycle) > 0 or redis.call('SCARD', early) > 0 then return 0 end
  for at, holder in ipairs(redis.call('HMGET', active, unpack(groups))) do
    local group = groups[at]
    local turns = string.match(holder or '', '^ (%d+)$')
    if not turns or string.find(group, '%X') then return 0 end -- no ordering key, or not as a receive has left it
    local stay = without(turns, gone_of[group])
    local first = redis.call('ZRANGEBYLEX', waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
    local turn = first and string.sub(first, GROUP + 1, GROUP + #FIRST_TURN)
    if #stay > 0 then
      if turn and turn < ends_of(stay) then return 0 end
      held[#held + 1], held[#held + 2] = group, ' ' .. stay
    elseif not first then
      free[#free + 1] = group
    else
      local element = element_in_line(first)
      if goes_home(turn) or priority_of(element) then return 0 end
      held[#held + 1], held[#held + 2] = group, id_of(element)
      following[#following + 1], ready[#ready + 1] = first, element
    end
  end
end
redis.call('HDEL', receipts, unpack(ids))
redis.call('ZREM', received, unpack(ids))
if #references > 0 then redis.call('HDEL', bodies, unpack(references)) end
if #free > 0 then redis.call('HDEL', active, unpack(free)) end
if #held > 0 then redis.call('HSET', active, unpack(held)) end
if #following > 0 then
  redis.call('ZREM', waiting, unpack(following))
  redis.call('LPUSH', messages, unpack(ready))
end
redis.call('HINCRBY', counters, 'acked', #ids)
return 1
