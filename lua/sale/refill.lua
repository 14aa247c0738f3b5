-- Purpose: take over the stock of the database, read while nothing was on its way from here to
--   there: units that came back (added by an admin, of orders that were cancelled) are admitted
--   again.
-- KEYS[1]: the sale, a hash; KEYS[2]: the stream
-- ARGV[1]: the epoch; ARGV[2]: how many had been admitted (`seq`) before the database was asked;
--   ARGV[3]: units left there
-- Returns: 1 taken over; 0 somebody was admitted meanwhile, or entries are not acknowledged yet
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if sale[1] ~= ARGV[1] or sale[2] ~= ARGV[2] or redis.call('XLEN', KEYS[2]) > 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'stock', ARGV[3])
return 1
