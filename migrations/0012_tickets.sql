-- How each ticket of the queued path ended. The row is written in the order's own transaction, or
-- alone if there is to be no order; the unique key lets one of them win, so a ticket ends once. (It
-- is no primary key because its name is what tells the two apart in an error of the server.)
CREATE TABLE IF NOT EXISTS tickets (
  ticket     BINARY(16) NOT NULL COMMENT 'UUIDv7, see TicketId',
  user_id    BIGINT UNSIGNED NOT NULL,
  voucher_id BIGINT UNSIGNED NOT NULL,
  state      ENUM('bought', 'already_ordered', 'sold_out', 'refused', 'lost', 'dead') NOT NULL,
  order_id   BIGINT UNSIGNED NULL COMMENT 'the order that was written, or stood in the way',
  UNIQUE KEY uq_tickets_ticket (ticket)
) ENGINE = InnoDB COMMENT = 'how each ticket ended';
