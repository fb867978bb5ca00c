-- settle: remove messages from processing or move them on, and claim the next messages in the same step.
--
-- KEYS  1-10 places  11 processing  12 lease  13 delayed  14 dead  15 index  16.. marks, in the order of the messages done
-- ARGV  1 lease ms (0 = do not renew the lease)  2 n to claim  3 n acks  4 positions, among all messages that follow, of
--       those that BLMOVE moved here: they are not yet counted as claimed  5.. elements to ack,
--       then for each other message: element, destination, counter, delay ms, id, new element
--       destinations: head | tail (of the ready messages), delayed, dead, gone (deleted), done (deleted, and a mark is set
--       for delay ms, also if the consumer no longer holds the message: it was handled and must not run again),
--       round | rest (for a member of a cycle: head | delayed, after other messages that wait for its key; deleted if the
--       member was removed)
-- Returns {'ok' | 'paused' | 'lost', now, codes, element ...}: codes has one letter per message, in the order of ARGV:
--         d = done, a = already settled (the lease is valid, the message not there), l = lost (no lease); then the
--         claimed elements
-- Refuses to claim as claim does. Removes before it adds: a full Redis can still be emptied.
-- uses: now, element, index, rounds, renew, place, take
local q, processing, lease, delayed, dead, index = named_places(1), unpack(KEYS, 11, 15)
local limit, acks = tonumber(ARGV[2]), tonumber(ARGV[3])
local first_other = 5 + acks
local now = now_ms()

redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
check_exits(q)
if limit > 0 then redis.call('LLEN', q.messages) end
if first_other <= #ARGV then
  redis.call('LLEN', q.messages)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', dead)
  redis.call('HLEN', index)
  for at = 16, #KEYS do redis.call('STRLEN', KEYS[at]) end
end

local alive = ARGV[1] == '0' and redis.call('EXISTS', lease) == 1 or renew(lease, now + ARGV[1])
local codes = {}

local function removed(element)
  local done = redis.call('LREM', processing, -1, element) == 1
  codes[#codes + 1] = done and 'd' or alive and 'a' or 'l'
  return done
end

local acked = 0
for at = 5, first_other - 1 do
  if removed(ARGV[at]) then
    acked = acked + 1
    if q.keyed then release_key(q, ARGV[at]) end
  end
end
if acked > 0 then redis.call('HINCRBY', q.counters, 'acked', acked) end

local mark = 15
for at = first_other, #ARGV, 6 do
  local element, destination, counter, delay, id, again = unpack(ARGV, at, at + 5)
  local held = removed(element)
  if destination == 'done' then
    mark = mark + 1
    redis.call('SET', KEYS[mark], '1', 'PX', delay)
  end
  if held then
    if destination == 'round' or destination == 'rest' then
      if is_member(q, element) then
        destination = destination == 'round' and 'head' or 'delayed'
        if pass_on(q, group_of(element)) then leave_round(q, group_of(element)) end
      else
        destination, counter = 'gone', 'cancelled'
      end
    end
    if destination == 'head' then
      place(q, again)
    elseif destination == 'tail' then
      redis.call('RPUSH', q.messages, again)
    elseif destination == 'delayed' then
      if q.keyed and is_member(q, element) then leave_round(q, group_of(element)) end
      index_add(delayed, index, now + delay, id, again)
    else -- dead, gone, done
      if destination == 'dead' then
        index_add(dead, index, now, id, again)
        redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
      end
      if q.keyed then release_key(q, element) end
    end
    redis.call('HINCRBY', q.counters, counter, 1)
  end
end

local moved = 0
for position in string.gmatch(ARGV[4], '%d+') do
  if codes[tonumber(position)] == 'd' then moved = moved + 1 end
end
if moved > 0 then redis.call('HINCRBY', q.counters, 'claimed', moved) end
codes = table.concat(codes)
if not alive then return {'lost', now, codes} end
if limit < 1 then return {'ok', now, codes} end
local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'round')
if policy[1] then return {'paused', now, codes} end
return {'ok', now, codes, unpack(take(q, processing, limit, policy))}
