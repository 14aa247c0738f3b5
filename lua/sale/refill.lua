-- Purpose: take over what the database has: units that came back (added by an admin, of orders
--   that were cancelled) are admitted again. Whatever was on its way there when it was asked may
--   still take a unit each, or give it back here; all others are free.
-- KEYS[1]: the sale, a hash
-- ARGV[1]: the epoch; ARGV[2]: how many had been admitted (`seq`) before the database was asked;
--   ARGV[3]: units left there; ARGV[4]: how many were on their way, at most
-- Returns: 1 taken over; 0 somebody was admitted meanwhile, or no more are free than it knows of
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'stock')
if sale[1] ~= ARGV[1] or sale[2] ~= ARGV[2] then
  return 0
end
local free = tonumber(ARGV[3]) - tonumber(ARGV[4])
if tonumber(ARGV[4]) > 0 and free <= tonumber(sale[3]) then
  return 0
end
redis.call('HSET', KEYS[1], 'stock', string.format('%.0f', free))
return 1
