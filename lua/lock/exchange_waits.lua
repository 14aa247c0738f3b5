-- Purpose: store what the tasks of a process wait for, and read what those of all processes do.
-- KEYS[1]: the records of all processes, a hash of process to "<expiry in ms> <sequence> <record>"
-- ARGV[1]: the process; empty to store nothing
-- ARGV[2]: how long the record is valid, in ms
-- ARGV[3]: its sequence number; a record with a lower one comes late and is not stored
-- ARGV[4]: the record
-- ARGV[5]: the most processes
-- Returns: process, sequence number and record of each process, one after the other
-- Errors: WRONGTYPE
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
local found, count, known = {}, 0, -1
for i = 1, #all, 2 do
  local expiry, sequence, record = string.match(all[i + 1], '^(%d+) (%d+) (.*)$')
  if not expiry or tonumber(expiry) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] == ARGV[1] then
    known = tonumber(sequence)
  else
    count = count + 1
    table.insert(found, all[i])
    table.insert(found, sequence)
    table.insert(found, record)
  end
end
if ARGV[1] ~= '' and tonumber(ARGV[3]) >= known and count < tonumber(ARGV[5]) then
  local expiry = string.format('%.0f', now + ARGV[2])
  redis.call('HSET', KEYS[1], ARGV[1], expiry .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return found
