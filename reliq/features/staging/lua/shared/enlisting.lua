-- Jobs that stage messages.

-- Add messages of a part to a job, which begins with the first ones; its time limit begins anew.
local function enlist(job, jobs, parts, name, run, limit_ms, part, messages)
  local now = now_ms()
  redis.call('HSET', job, 'state', 'open', 'run', run)
  redis.call('HSETNX', job, 'opened', now)
  redis.call('HINCRBY', job, 'staged', messages)
  redis.call('ZADD', jobs, now + limit_ms, name)
  redis.call('SADD', parts, part)
end
