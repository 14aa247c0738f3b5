-- Purpose: free a lock, but only if the caller still owns it; one step, so nothing comes between.
-- KEYS[1]: the lock
-- ARGV[1]: the owner
-- Returns: 1 freed; 0 another owner's, untouched; -1 not held (expired or removed)
-- Errors: WRONGTYPE; ERR arguments
if #KEYS ~= 1 or #ARGV ~= 1 or ARGV[1] == '' then
  return redis.error_reply('ERR arguments: lock; owner')
end
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
if owner then
  return 0
end
return -1
