-- Which queues are partitions, and which of them take no new messages. `retired` of config: 1, or 0 in one that takes some. One
-- without this field is in no layout that its server knows: the server was restarted from an older state, or it has not been
-- told yet.

local function is_partition(config)
  return string.find(config, '@partition.', 1, true) ~= nil
end

local function is_closed(config, retired)
  return retired == '1' or not retired and is_partition(config)
end
