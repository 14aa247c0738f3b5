-- The bare order transaction: BEGIN, INSERT an order of a new user, UPDATE the one stock row,
-- COMMIT. No HTTP, no token, no lock: what the database itself makes of one order at a time, to
-- compare the service with. The tables are the service's own; `loadtest bench` makes them.
--
--   sysbench loadtest/benches/bare_order.lua --mysql-host=... --mysql-port=... --mysql-user=...
--     --mysql-password=... --mysql-db=... --threads=8 --time=15 prepare|run|cleanup
--
-- `--buckets=8` takes the units from 8 rows instead, as a voucher with `stock_buckets` does.
--
-- INSERT and UPDATE are prepared once a connection. (The service sends text, two packets an order.)

local VOUCHER = 4000000000
local STOCK = 2000000000
local ROWS = 10000

sysbench.cmdline.options = {
  filled = { "Orders that `prepare` puts into the table", 0 },
  buckets = { "Rows that the stock is split into", 1 },
}

function prepare()
  local connection = sysbench.sql.driver():connect()
  connection:query(string.format(
    "INSERT INTO vouchers (id, title, description, price_cents, face_value_cents, starts_at, " ..
    "ends_at) VALUES (%d, 'bare', 'bare', 1, 1, '2020-01-01', '2120-01-01')", VOUCHER))
  connection:query(string.format("INSERT INTO voucher_stock VALUES (%d, %d)", VOUCHER, STOCK))
  for bucket = 0, sysbench.opt.buckets - 1 do
    connection:query(string.format(
      "INSERT INTO voucher_stock_buckets VALUES (%d, %d, %d)", VOUCHER, bucket, STOCK / 64))
  end
  for first = 1, sysbench.opt.filled, ROWS do
    local rows = {}
    for number = first, math.min(first + ROWS - 1, sysbench.opt.filled) do
      rows[#rows + 1] = string.format("(%d, %d, %d, 1, '2026-01-01')", number, number, VOUCHER)
    end
    connection:query("INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) " ..
      "VALUES " .. table.concat(rows, ","))
  end
end

function cleanup()
  local connection = sysbench.sql.driver():connect()
  connection:query(string.format("DELETE FROM orders WHERE voucher_id = %d", VOUCHER))
  connection:query(string.format(
    "DELETE FROM voucher_stock_buckets WHERE voucher_id = %d", VOUCHER))
  connection:query(string.format("DELETE FROM voucher_stock WHERE voucher_id = %d", VOUCHER))
  connection:query(string.format("DELETE FROM vouchers WHERE id = %d", VOUCHER))
end

function thread_init()
  connection = sysbench.sql.driver():connect()
  connection:query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
  insert = connection:prepare(string.format(
    "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) " ..
    "VALUES (?, ?, %d, 1, '2026-01-01')", VOUCHER))
  id = insert:bind_create(sysbench.sql.type.BIGINT)
  user = insert:bind_create(sysbench.sql.type.BIGINT)
  insert:bind_param(id, user)
  local row = string.format("voucher_stock SET stock = stock - 1 WHERE voucher_id = %d", VOUCHER)
  if sysbench.opt.buckets > 1 then
    row = row:gsub("voucher_stock", "voucher_stock_buckets") .. " AND bucket = ?"
  end
  take = connection:prepare("UPDATE " .. row .. " AND stock >= 1")
  if sysbench.opt.buckets > 1 then
    bucket = take:bind_create(sysbench.sql.type.BIGINT)
    take:bind_param(bucket)
  end
  -- Users and ids of a thread never meet another thread's, nor those of an earlier run.
  first = os.time() * 1000000
  next_number = sysbench.tid
end

function event()
  local number = first + next_number
  next_number = next_number + sysbench.opt.threads
  connection:query("BEGIN")
  id:set(number)
  user:set(number)
  insert:execute()
  if bucket then
    bucket:set(number % sysbench.opt.buckets)
  end
  take:execute()
  connection:query("COMMIT")
end
