-- heartbeat: renew a lease if it still exists.
--
-- KEYS  lease
--       lease: only this one, so that Redis refuses no heartbeat while it moves a cluster slot
-- ARGV  lease_ms
-- Returns 1, or 0 if the lease does not exist: the monitor has taken the consumer's messages back
-- uses: now, renew
-- names of the keys and arguments (tools/generate_scripts.py)
local lease = KEYS[1]
local lease_ms = ARGV[1]
-- end of the names
if not is_leased(lease) then return 0 end
renew(lease, now_ms(), lease_ms)
return 1
