-- Renew a lease, if it is still there. DEL comes first, because a full Redis lets nothing pass that has not begun with a
-- removal, and a worker that cannot renew could not drain it either.
local function renew(lease, deadline)
  if redis.call('DEL', lease) == 0 then return false end
  redis.call('SET', lease, deadline)
  return true
end
