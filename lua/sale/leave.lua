-- Purpose: remove a consumer that comes back under another name, unless entries are still its own:
--   those are found by others under its name.
-- KEYS[1]: the stream
-- ARGV[1]: the consumer
-- Returns: 1 removed; 0 it has entries, or there is no such stream
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if #redis.call('XPENDING', KEYS[1], 'sale', '-', '+', 1, ARGV[1]) > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'sale', ARGV[1])
return 1
