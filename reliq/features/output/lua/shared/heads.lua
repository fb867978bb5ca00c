-- The heads of streams of output, fields of `followed`: under a tab and the id of a message how many chunks it has
-- emitted, their bytes, the number of the run that emitted the latest one, the nonce of its push, the token of the
-- call, the ms at which the stream's time to live was set, behind a slash for how many ms output was kept then, and
-- `open` or `dead`. `emitted` of config counts the heads. The part of the moments deletes a head with its message.

local function head_field(id)
  return '\t' .. id
end

-- Store a head.
local function write_head(followed, config, id, text, is_new)
  redis.call('HSET', followed, head_field(id), text)
  if is_new then redis.call('HINCRBY', config, 'emitted', 1) end
end
