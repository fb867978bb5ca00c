-- push: add new messages without options to a queue without limits. The most frequent call, kept as cheap as possible.
--
-- KEYS  messages, counters, config, producers, bodies?
--       bodies: if one of the messages has its body there
-- ARGV  producer, sequence: number, entry, elements...
--       entry: the producer's: sequence and ms, estimated by the producer because TIME would cost as much as the push
-- Returns 1, also if this call was carried out before; 0: the queue has a limit, follows its messages or is a partition that
--         takes none, and the caller must use `enqueue`
-- uses: producers, element, bodies, partition
-- names of the keys and arguments (tools/generate_scripts.py)
local messages, counters, config, producers, bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local producer, sequence, entry = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ELEMENTS = 4
-- end of the names
if bodies then redis.call('HLEN', bodies) end -- wrong types are refused here, before the first write
if carried_out(producers, producer, sequence) then
  if bodies then take_back_late(bodies) end
  return 1
end
local policy = redis.call('HMGET', config, 'max_length', 'max_bytes', 'track', 'history', 'retired')
if policy[1] or policy[2] or policy[3] or policy[4] or is_closed(config, policy[5]) then
  if bodies then delete_bodies(bodies, {unpack(ARGV, ELEMENTS)}) end
  return 0
end
redis.call('HLEN', counters)
for from = ELEMENTS, #ARGV, 1000 do -- the first write: fails if the key is not a list
  redis.call('LPUSH', messages, unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
redis.call('HSET', producers, producer, entry)
redis.call('HINCRBY', counters, 'enqueued', #ARGV - ELEMENTS + 1)
return 1
