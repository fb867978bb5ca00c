-- Renew a lease if it still exists. A full Redis refuses SET as the first write of a script; PEXPIREAT needs no memory, and
-- after it SET passes and removes the expiry. The key is never missing in between: Redis refuses a SET of a missing key in
-- a cluster slot that is being moved.
local function renew(lease, deadline)
  if redis.call('EXISTS', lease) == 0 then return false end
  if redis.pcall('SET', lease, deadline).err then
    redis.call('PEXPIREAT', lease, deadline)
    redis.call('SET', lease, deadline)
  end
  return true
end
