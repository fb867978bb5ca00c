-- A script on the simulation's clock: its last argument is the time. Keys that expire get a deadline in `simulation:expiring`
-- and a real one far in the future, which only says that they expire: so a deleted or renamed key behaves as it would.
local redis = (function()
  local server, micros = redis, table.remove(ARGV)
  local EXPIRING, NEVER = 'simulation:expiring', 4e12 -- ms since the epoch
  local now = math.floor(tonumber(micros) / 1000)

  local function expires(run, key, ms, ...)
    local reply = run(...)
    if not (type(reply) == 'table' and reply.err) then server.call('ZADD', EXPIRING, ms, key) end
    return reply
  end

  local function left(key)
    local real = server.call('PTTL', key)
    return real < 0 and real or (server.call('ZSCORE', EXPIRING, key) or now) - now
  end

  local function on(run)
    return function(name, ...)
      local given = {...}
      if name == 'TIME' then
        return {string.sub(micros, 1, -7), string.sub(micros, -6)}
      elseif name == 'SMEMBERS' or name == 'HKEYS' then -- in an order that is the same in each run
        local members = run(name, ...)
        table.sort(members)
        return members
      elseif name == 'PTTL' then
        return left(given[1])
      elseif name == 'PEXPIRE' then
        return expires(run, given[1], now + given[2], 'PEXPIREAT', given[1], NEVER)
      elseif name == 'PEXPIREAT' then
        return expires(run, given[1], given[2], 'PEXPIREAT', given[1], NEVER)
      elseif name == 'SET' and given[3] == 'PX' then
        return expires(run, given[1], now + given[4], 'SET', given[1], given[2], 'PXAT', NEVER)
      elseif name == 'RENAME' then
        local deadline = server.call('ZSCORE', EXPIRING, given[1])
        local reply = run(name, ...)
        if deadline then server.call('ZADD', EXPIRING, deadline, given[2]) end
        return reply
      end
      return run(name, ...)
    end
  end
  return setmetatable({call = on(server.call), pcall = on(server.pcall)}, {__index = server})
end)()
