-- Renew a lease, if it is still there. PEXPIREAT says whether it is, and is a write that a full Redis lets pass; so it lets
-- SET pass too, which ends the expiry again. The key is never missing in between: in a slot that is being moved, a SET
-- of a missing key is refused.
local function renew(lease, deadline)
  if redis.call('PEXPIREAT', lease, deadline) == 0 then return false end
  redis.call('SET', lease, deadline)
  return true
end
