-- People who log in by phone. `seckill token` makes them in bulk for load runs.
CREATE TABLE IF NOT EXISTS users (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'subject of the token',
  phone      VARCHAR(16) CHARACTER SET ascii NOT NULL COMMENT 'login name',
  role       ENUM('buyer', 'admin') NOT NULL DEFAULT 'buyer' COMMENT 'goes into the token',
  PRIMARY KEY (id),
  UNIQUE KEY uq_users_phone (phone) COMMENT 'a phone is one user, also in a race of first logins'
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT = 'people who log in by phone';
