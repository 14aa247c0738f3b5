-- Purpose: free a lock of any hold count, of any owner or of one, and wake a waiter.
-- KEYS[1]: the lock, a hash of owner to hold count
-- KEYS[2]: the channel of its waiters
-- ARGV[1]: the message
-- ARGV[2]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- ARGV[3]: the owner, whose lock alone is freed; * for any
-- Returns: 1 freed; 0 it was not held, or not by that owner
-- Errors: WRONGTYPE; ERR arguments
if #KEYS ~= 2 or #ARGV ~= 3 or ARGV[1] == '' or ARGV[3] == ''
  or (ARGV[2] ~= 'PUBLISH' and ARGV[2] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: lock, channel; message, command, owner')
end
local holds = redis.call('HVALS', KEYS[1])
if #holds == 0 then
  return 0
end
if #holds ~= 1 or not tonumber(holds[1]) then
  return redis.error_reply('WRONGTYPE the hash is no such lock')
end
if ARGV[3] ~= '*' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[2], KEYS[2], ARGV[1])
return 1
