-- breaker: count how runs ended, and open or close the queue's circuit breaker.
--
-- KEYS  config, flow, counters
-- ARGV  passed: number, failed: number, probe, threshold: number, fewest: number, window: number, open_for: number
--       passed, failed: runs that did
--       probe: how the probe ended: 'passed' | 'failed' | 'untried' = its handler did not run, so the next message is
--       tried | '' = no probe among them
--       threshold: the share of failed runs at which it opens
--       fewest: runs, below which it does not open
--       window: ms over which they are counted
--       open_for: ms
-- Returns {the state before, the state now}: 'closed' | 'open' | 'half_open'
-- While it is not closed only a probe moves it: other runs began before it opened.
-- uses: now, flow, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, flow, counters = KEYS[1], KEYS[2], KEYS[3]
local passed, failed, probe, threshold = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local fewest, window, open_for = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
-- end of the names
local now = now_ms()
redis.call('HLEN', config)
redis.call('HLEN', counters)
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
pass_when_full(flow)
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
  if state == 'half_open' and probe == 'untried' then
    redis.call('HDEL', flow, 'prober')
    redis.call('HSET', flow, 'breaker_until', now)
  end
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
