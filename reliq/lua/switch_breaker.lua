-- switch_breaker: open or close the queue's circuit breaker by hand.
--
-- KEYS  config, flow, counters, call?
--       call: has the answer of a call that is repeated
-- ARGV  open_for: number
--       open_for: ms; 0 = close it
-- Returns the state before: 'closed' | 'open' | 'half_open'
-- uses: now, flow, calls, full
-- names of the keys and arguments (tools/generate_scripts.py)
local config, flow, counters, call = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local open_for = tonumber(ARGV[1])
-- end of the names
redis.call('HLEN', config)
redis.call('HLEN', counters)
redis.call('HLEN', flow) -- wrong types are refused here, before the first write
pass_when_full(flow)
local answered = answer_before(call)
if answered then return answered end
local before = redis.call('HGET', flow, 'breaker') or 'closed'
if open_for == 0 then
  close_breaker(flow)
else
  open_breaker(config, flow, now_ms(), open_for)
  if before == 'closed' then redis.call('HINCRBY', counters, 'breaker_opened', 1) end
end
return answer_with(call, before)
