-- push: add new messages without options to a queue without limits. The most frequent call, kept as cheap as possible.
--
-- KEYS  1 messages  2 counters  3 config  4 producers  5 bodies, if one of the messages has its body there
-- ARGV  1 producer  2 sequence  3 the producer's entry: sequence and ms, estimated by the producer because TIME would cost
--       as much as the push  4.. elements
-- Returns 1, also if this call was carried out before; 0: the queue has a limit, follows its messages or is a partition that
--         takes none, and the caller must use `enqueue`
-- uses: producers, element, bodies, partition
local messages, counters, config, producers, bodies = unpack(KEYS)
if bodies then redis.call('HLEN', bodies) end -- wrong types are refused here, before the first write
if carried_out(producers, ARGV[1], tonumber(ARGV[2])) then
  if bodies then take_back_late(bodies) end
  return 1
end
local policy = redis.call('HMGET', config, 'max_length', 'max_bytes', 'track', 'history', 'retired')
if policy[1] or policy[2] or policy[3] or policy[4] or is_closed(config, policy[5]) then
  if bodies then delete_bodies(bodies, {unpack(ARGV, 4)}) end
  return 0
end
redis.call('HLEN', counters)
for from = 4, #ARGV, 1000 do -- the first write: fails if the key is not a list
  redis.call('LPUSH', messages, unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
redis.call('HSET', producers, ARGV[1], ARGV[3])
redis.call('HINCRBY', counters, 'enqueued', #ARGV - 3)
return 1
