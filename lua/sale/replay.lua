-- Purpose: admit a dead letter again, with the ticket that it had.
-- KEYS[1]: the sale, a hash; KEYS[2]: the users, a hash; KEYS[3]: the tickets, a hash; KEYS[4]: the
--   stream
-- ARGV[1]: user; ARGV[2]: ticket; ARGV[3]: price in cents; ARGV[4]: the most entries in the stream
-- Returns: 'admitted'; 'sold_out'; 'full'; 'ticket' the user has another; 'unopened' there is no
--   such sale any more
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'stock', 'skew')
if not sale[1] then
  return 'unopened'
end
local mine = redis.call('HGET', KEYS[2], ARGV[1])
if mine and mine ~= ARGV[2] then
  return 'ticket'
end
if tonumber(sale[2]) < 1 then
  return 'sold_out'
end
if redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[4]) then
  return 'full'
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(sale[3])
redis.call('HINCRBY', KEYS[1], 'stock', -1)
local number = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], 'pending', 'n:' .. ARGV[2], number)
redis.call('XADD', KEYS[4], '*', 'ticket', ARGV[2], 'user', ARGV[1], 'epoch', sale[1],
  'price', ARGV[3], 'at', string.format('%.0f', now))
-- Keys that were gone have no end; the sale's is theirs.
local left = redis.call('PTTL', KEYS[1])
for at = 2, 3 do
  if left > 0 then
    redis.call('PEXPIRE', KEYS[at], left)
  end
end
return 'admitted'
