-- Unpaid orders of one goods, the most overdue first: goods expire apart from each other.
DROP INDEX sale_orders_unpaid;
CREATE INDEX sale_orders_unpaid ON sale_orders (goods, pay_by) WHERE state = 1 AND pay_by IS NOT NULL;

-- What is given back of one goods, the oldest first.
DROP INDEX sale_returns_goods;
CREATE INDEX sale_returns_goods ON sale_returns (goods, id);
