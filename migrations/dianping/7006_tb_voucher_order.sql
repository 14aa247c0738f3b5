-- Orders: status 1 is unpaid, 2 paid, 4 cancelled. `seckill adopt` adds the unique key.
CREATE TABLE IF NOT EXISTS tb_voucher_order (
    id BIGINT NOT NULL PRIMARY KEY,
    user_id BIGINT UNSIGNED NOT NULL,
    voucher_id BIGINT UNSIGNED NOT NULL,
    pay_type TINYINT UNSIGNED NOT NULL DEFAULT 1,
    status TINYINT UNSIGNED NOT NULL DEFAULT 1,
    create_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    pay_time TIMESTAMP NULL,
    use_time TIMESTAMP NULL,
    refund_time TIMESTAMP NULL,
    update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
) DEFAULT CHARSET = utf8mb4;
