-- Messages that wait here for a monitor to take them to another partition, and leave by it or otherwise. Requires `element`,
-- `bodies` and `lanes`.

-- Take members of `waiting`, from this argument on, out of their lines; returns the elements of those that were there.
local function take_strays(q, from)
  local gone = {}
  for at = from, #ARGV do
    local member = ARGV[at]
    if redis.call('ZREM', q.waiting, member) == 1 then gone[#gone + 1] = element_in_line(member) end
  end
  delete_bodies(q.bodies, gone)
  return gone
end
