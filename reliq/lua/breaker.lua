-- breaker: count how runs ended, and open or close the queue's circuit breaker.
--
-- KEYS  1 config  2 flow  3 counters
-- ARGV  1 runs that passed  2 runs that failed  3 how the probe ended: 'passed' | 'failed' | 'untried' = its handler
--       did not run, so the next message is tried | '' = no probe among them
--       4 threshold: the share of failed runs at which it opens  5 fewest runs  6 ms over which they are counted
--       7 ms for which it is open
-- Returns {the state before, the state now}: 'closed' | 'open' | 'half_open'
-- While it is not closed only a probe moves it: other runs began before it opened.
-- uses: now, flow
local config, flow, counters = unpack(KEYS)
local passed, failed, probe = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local threshold, fewest, window, open_for = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local now = now_ms()
redis.call('HLEN', config)
redis.call('HLEN', counters)
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
redis.call('PERSIST', flow) -- no effect, but after this write the next ones pass when memory is full
local state, since = unpack(redis.call('HMGET', flow, 'breaker', 'breaker_since'))

if state then
  if state == 'half_open' and probe == 'passed' then
    close_breaker(flow)
    return {state, 'closed'}
  end
  if state == 'half_open' and probe == 'failed' then
    open_breaker(config, flow, now, open_for)
    return {state, 'open'}
  end
  if state == 'half_open' and probe == 'untried' then redis.call('HSET', flow, 'breaker_until', now) end
  return {state, state}
end

if not since or now - since >= window then
  redis.call('HDEL', flow, 'breaker_passed', 'breaker_failed')
  redis.call('HSET', flow, 'breaker_since', now)
end
if passed > 0 then redis.call('HINCRBY', flow, 'breaker_passed', passed) end
if failed > 0 then redis.call('HINCRBY', flow, 'breaker_failed', failed) end
local counts = redis.call('HMGET', flow, 'breaker_passed', 'breaker_failed')
passed, failed = tonumber(counts[1] or 0), tonumber(counts[2] or 0)
if passed + failed < fewest or failed < threshold * (passed + failed) then return {'closed', 'closed'} end
open_breaker(config, flow, now, open_for)
redis.call('HINCRBY', counters, 'breaker_opened', 1)
return {'closed', 'open'}
