-- How long output lives.

-- Let a stream live for as long as the queue keeps output; `outputs` tells monitors that the queue has some.
local function keep_for(config, output, outputs)
  local kept = string.format('%.0f', (redis.call('HGET', config, 'keep_output') or 86400) * 1000)
  redis.call('PEXPIRE', output, kept)
  redis.call('SET', outputs, '1', 'PX', kept)
end
