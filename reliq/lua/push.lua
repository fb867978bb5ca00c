-- push: put new messages without options into a queue without limits: most calls by far, and what each costs counts.
--
-- KEYS  1 messages  2 counters  3 config  4 producers
-- ARGV  1 producer  2 sequence  3 what is remembered of it: sequence and ms, as near the server's clock as its producer
--       knows; asking for the time would cost as much as the push  4.. elements
-- Returns 1, also where this call was carried out before; 0: the queue has a limit, `enqueue` is to decide
-- uses: producers
local messages, counters, config, producers = unpack(KEYS)
local limits = redis.call('HMGET', config, 'max_length', 'max_bytes')
if limits[1] or limits[2] then return 0 end
if carried_out(producers, ARGV[1], tonumber(ARGV[2])) then return 1 end
redis.call('HLEN', counters) -- a wrong type is refused here, before the first write
for from = 4, #ARGV, 1000 do -- the first write: it refuses what is no list
  redis.call('LPUSH', messages, unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
redis.call('HSET', producers, ARGV[1], ARGV[3])
redis.call('HINCRBY', counters, 'enqueued', #ARGV - 3)
return 1
