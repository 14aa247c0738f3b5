-- From here on an order begins unpaid.
ALTER TABLE orders ALTER COLUMN status SET DEFAULT 'unpaid';
