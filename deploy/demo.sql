-- What `docker compose --profile demo up` puts on sale: one voucher that is open, and one that
-- opens a minute later. It does nothing while a voucher is on sale that has not ended.
SET time_zone = '+00:00';
START TRANSACTION;
INSERT INTO vouchers
  (title, description, price_cents, face_value_cents, starts_at, ends_at, status)
SELECT title, description, price_cents, face_value_cents,
       UTC_TIMESTAMP(3) + INTERVAL opens_in SECOND, UTC_TIMESTAMP(3) + INTERVAL 30 DAY, 'on_sale'
FROM (
  SELECT 'Afternoon tea for two' AS title,
         'A pot of oolong and a three-tier stand, any weekday until six.' AS description,
         8800 AS price_cents, 16800 AS face_value_cents, -60 AS opens_in
  UNION ALL
  SELECT 'Hotpot dinner for four', 'The big pot with everything, drinks not included.',
         19900, 39800, 60
) AS samples
WHERE NOT EXISTS
  (SELECT 1 FROM vouchers WHERE status = 'on_sale' AND ends_at > UTC_TIMESTAMP(3));
INSERT INTO voucher_stock (voucher_id, stock)
SELECT id, 100 FROM vouchers WHERE id NOT IN (SELECT voucher_id FROM voucher_stock);
INSERT INTO stock_grants (voucher_id, units)
SELECT id, 100 FROM vouchers WHERE id NOT IN (SELECT voucher_id FROM stock_grants);
COMMIT;
