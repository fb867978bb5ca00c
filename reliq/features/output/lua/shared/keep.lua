-- How long output lives.

-- Return for how many ms the output of a message is kept.
local function kept_ms(config)
  return (redis.call('HGET', config, 'keep_output') or 86400) * 1000
end

-- Let a stream live for so many ms; `outputs` tells monitors that the queue has some.
local function keep_for(ms, output, outputs)
  local text = string.format('%.0f', ms)
  redis.call('PEXPIRE', output, text)
  redis.call('SET', outputs, '1', 'PX', text)
end
