-- Renew a lease if it still exists. PEXPIREAT tells whether it does, and is a write that a full Redis accepts; after it
-- Redis accepts the SET too, which removes the expiry. The key is never missing in between: Redis refuses a SET of a
-- missing key in a cluster slot that is being moved.
local function renew(lease, deadline)
  if redis.call('PEXPIREAT', lease, deadline) == 0 then return false end
  redis.call('SET', lease, deadline)
  return true
end
