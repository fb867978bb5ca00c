-- How long output lives.

-- Let a stream live for so many ms; `outputs` tells monitors that the queue has some.
local function keep_for(ms, output, outputs)
  local text = string.format('%.0f', ms)
  redis.call('PEXPIRE', output, text)
  redis.call('SET', outputs, '1', 'PX', text)
end
