-- Purpose: remove a semaphore or a latch, and tell its waiters.
-- KEYS[1]: the synchronizer, a hash
-- KEYS[2]: the channel of its waiters
-- KEYS[3]: optional: what else belongs to it
-- ARGV[1]: the message
-- ARGV[2]: the field that says of what kind it is
-- ARGV[3]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 removed; 0 there was none
-- Errors: WRONGTYPE; ERR arguments
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
if #KEYS < 2 or #KEYS > 3 or #ARGV ~= 3 or ARGV[1] == '' or ARGV[2] == ''
  or (ARGV[3] ~= 'PUBLISH' and ARGV[3] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: name, channel; message, field, command')
end
if not count_of(redis.call('HGET', KEYS[1], ARGV[2])) then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the name is in use by another kind')
  end
  return 0
end
redis.call('DEL', KEYS[1])
if KEYS[3] then
  redis.call('DEL', KEYS[3])
end
redis.pcall(ARGV[3], KEYS[2], ARGV[1])
return 1
