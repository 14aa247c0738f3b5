-- Purpose: give one opener the turn, for a sale that is not open or is open in a useless epoch.
--   Check and claim are one step: a sale may be opened between two.
-- KEYS[1]: the sale, a hash; KEYS[2]: the turn, which open.lua ends
-- ARGV[1]: how long the turn lasts, in ms; ARGV[2]: the useless epoch, or ''
-- Returns: 1 it is the caller's; 0 another opener has it, or the sale is open
local open = redis.call('HGET', KEYS[1], 'epoch')
if open and open ~= ARGV[2] then
  return 0
end
return redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) and 1 or 0
