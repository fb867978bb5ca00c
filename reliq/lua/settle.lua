-- settle: take messages out of processing for good or for elsewhere, and claim the next ones in the same step.
--
-- KEYS  1 messages  2 processing  3 lease  4 delayed  5 dead  6 counters  7 config  8 index  9.. marks, in the order of the messages done
-- ARGV  1 lease ms (0 = leave the lease as it is)  2 n to claim  3 n acks  4 n moved here by BLMOVE and not counted yet  5.. elements to ack,
--       then for each other message: element, destination, counter, delay ms, id, new element
--       destinations: head | tail (of messages), delayed, dead, gone, done (gone, and a mark is left for delay ms,
--       also by a consumer that does not hold the message any more: it was handled, and must not be handled again)
-- Returns {'ok' | 'paused' | 'lost', now, codes, element ...}: one letter a message, in the order of ARGV,
--         d = done, a = already (lease alive, not there: settled before), l = lost (lease gone); then what was claimed
-- Refuses to claim as claim does. Removes before it adds: a full Redis can still be drained.
-- uses: now, index, renew, take
local messages, processing, lease, delayed, dead, counters, config, index = unpack(KEYS)
local limit, acks, moved = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local first_other = 5 + acks
local now = now_ms()

redis.call('LLEN', processing) -- wrong types are refused here, before the first write
if first_other <= #ARGV then
  redis.call('LLEN', messages)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', dead)
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
  if removed(ARGV[at]) then acked = acked + 1 end
end
if acked > 0 then redis.call('HINCRBY', counters, 'acked', acked) end

local mark = 8
for at = first_other, #ARGV, 6 do
  local element, destination, counter, delay, id, again = unpack(ARGV, at, at + 5)
  local held = removed(element)
  if destination == 'done' then
    mark = mark + 1
    redis.call('SET', KEYS[mark], '1', 'PX', delay)
  end
  if held then
    if destination == 'head' then
      redis.call('LPUSH', messages, again)
    elseif destination == 'tail' then
      redis.call('RPUSH', messages, again)
    elseif destination == 'delayed' then
      file(delayed, index, now + delay, id, again)
    elseif destination == 'dead' then
      file(dead, index, now, id, again)
    end
    redis.call('HINCRBY', counters, counter, 1)
    if destination == 'dead' then redis.call('HINCRBY', counters, 'dead_lettered', 1) end
  end
end

if moved > 0 then redis.call('HINCRBY', counters, 'claimed', moved) end
codes = table.concat(codes)
if not alive then return {'lost', now, codes} end
if limit > 0 and redis.call('HGET', config, 'paused') then return {'paused', now, codes} end
return {'ok', now, codes, unpack(take(messages, processing, counters, limit))}
