-- Purpose: admit one purchase of a voucher, all or nothing: the window, one a user, a unit, a place
--   in the stream. The clock is this server's, moved to the database's (`skew`, see open.lua).
-- KEYS[1]: the sale, a hash of epoch, stock, seq, skew, came, ends; KEYS[2]: the users, a hash of
--   user to ticket; KEYS[3]: the tickets, a hash of ticket to state, and while that is pending of
--   n:ticket to its number (`seq`); KEYS[4]: the stream
-- ARGV[1]: user; ARGV[2]: ticket; ARGV[3]: price in cents; ARGV[4], ARGV[5]: the window, in ms
--   since 1970; ARGV[6]: for how long everything outlives it, in ms; ARGV[7]: the most entries in
--   the stream; ARGV[8]: the key of the request, or ''
-- Returns: {'admitted', ''}; {'ticket', t} the user holds that ticket, and its purchase is under
--   way; {'ended', s} the user's ticket has ended in that state; {'sold_out', ''}; {'full', ''} the
--   stream is; {'not_started', ''}; {'over', ''}; {'unopened', ''} nothing is known of the sale:
--   open it
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'stock', 'skew', 'ends')
if not sale[1] then
  return {'unopened', ''}
end
local time = redis.call('TIME')
local skew = tonumber(sale[3])
local now = time[1] * 1000 + math.floor(time[2] / 1000) + skew
if now < tonumber(ARGV[4]) then
  return {'not_started', ''}
end
if now >= tonumber(ARGV[5]) then
  return {'over', ''}
end
local mine = redis.call('HGET', KEYS[2], ARGV[1])
local state = mine and redis.call('HGET', KEYS[3], mine)
if state == 'pending' then
  return {'ticket', mine}
end
if state then
  return {'ended', state}
end
if tonumber(sale[2]) < 1 then
  return {'sold_out', ''}
end
if redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[7]) then
  return {'full', ''}
end
redis.call('HINCRBY', KEYS[1], 'stock', -1)
local number = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], 'pending', 'n:' .. ARGV[2], number)
redis.call('XADD', KEYS[4], '*', 'ticket', ARGV[2], 'user', ARGV[1], 'epoch', sale[1],
  'price', ARGV[3], 'at', string.format('%.0f', now), 'key', ARGV[8])
-- The end of the sale may have been moved; and a hash that was empty is a new one without an end.
local ends = string.format('%.0f', tonumber(ARGV[5]) - skew + tonumber(ARGV[6]))
local moved = ends ~= sale[4]
if moved then
  redis.call('HSET', KEYS[1], 'ends', ends)
end
for at, key in ipairs(KEYS) do
  if moved or (at == 2 or at == 3) and redis.call('HLEN', key) < at then
    redis.call('PEXPIREAT', key, ends)
  end
end
return {'admitted', ''}
