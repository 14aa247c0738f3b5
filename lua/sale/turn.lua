-- Purpose: give one opener its turn, for a sale that is not open, or is open in an epoch of no use.
--   Looking and taking are one step: who has seen no sale may be overtaken by who opens it.
-- KEYS[1]: the sale, a hash; KEYS[2]: the turn, which open.lua ends
-- ARGV[1]: how long the turn lasts, in ms; ARGV[2]: the epoch that is of no use, or ''
-- Returns: 1 it is the caller's; 0 it is somebody else's, or the sale is open
local open = redis.call('HGET', KEYS[1], 'epoch')
if open and open ~= ARGV[2] then
  return 0
end
return redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) and 1 or 0
