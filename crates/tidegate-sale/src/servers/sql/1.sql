CREATE TABLE sale_goods (
    goods      text PRIMARY KEY,
    definition text NOT NULL,
    state      text NOT NULL,
    -- Counts what operators change; Redis keeps the newest.
    rev        bigint NOT NULL DEFAULT 1,
    total      bigint NOT NULL CHECK (total > 0),
    -- Units of no live order.
    stock      bigint NOT NULL CHECK (stock >= 0 AND stock <= total),
    -- Counts what changes any of the numbers here: a write names the version that it has seen.
    version    bigint NOT NULL DEFAULT 1,
    -- Live orders.
    orders     bigint NOT NULL DEFAULT 0 CHECK (orders >= 0),
    -- Units that came back since it was created.
    returned   bigint NOT NULL DEFAULT 0,
    -- Units of this epoch's orders that have arrived here, placed or dead.
    arrived    bigint NOT NULL DEFAULT 0,
    -- Which loading of Redis this is; 0 for none.
    epoch      integer NOT NULL DEFAULT 0,
    -- The run of the Redis server that was loaded.
    redis_run  text NOT NULL DEFAULT '',
    -- Why it is held while it is rebuilt.
    held       text,
    -- The books did not balance: it is loaded again before it goes on.
    is_doubted boolean NOT NULL DEFAULT false,
    one_each   boolean NOT NULL,
    pay_within integer
);

CREATE TABLE sale_orders (
    order_sn   text PRIMARY KEY,
    goods      text NOT NULL,
    buyer      text NOT NULL,
    quantity   bigint NOT NULL,
    epoch      integer NOT NULL,
    path       bytea NOT NULL,
    key        text,
    -- As OrderState::code: 1 placed, 2 paid, 3 cancelled, 4 expired, 5 failed.
    state      smallint NOT NULL,
    reason     text,
    -- One live order a buyer, where the sale says so.
    is_single  boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    pay_by     bigint,
    CHECK (quantity > 0 OR state = 5)
);
CREATE UNIQUE INDEX sale_orders_path ON sale_orders (path) WHERE state <> 5;
CREATE UNIQUE INDEX sale_orders_single ON sale_orders (goods, buyer) WHERE is_single AND state IN (1, 2);
-- One live order for what a buyer calls one; Redis sees to it, but forgets.
CREATE UNIQUE INDEX sale_orders_key ON sale_orders (goods, buyer, key) WHERE key IS NOT NULL AND state IN (1, 2);
CREATE INDEX sale_orders_buyer ON sale_orders (goods, buyer) WHERE state IN (1, 2);
CREATE INDEX sale_orders_goods ON sale_orders (goods, state);
CREATE INDEX sale_orders_unpaid ON sale_orders (pay_by) WHERE state = 1 AND pay_by IS NOT NULL;

-- Orders that could not be placed, until an operator decides.
CREATE TABLE sale_dead (
    order_sn   text PRIMARY KEY,
    goods      text NOT NULL,
    buyer      text NOT NULL,
    quantity   bigint NOT NULL,
    epoch      integer NOT NULL,
    path       bytea NOT NULL,
    key        text,
    created_at bigint NOT NULL,
    reason     text NOT NULL,
    at         bigint NOT NULL,
    -- False if Redis was loaded without its units: it came too late to be counted.
    is_held    boolean NOT NULL
);
CREATE INDEX sale_dead_goods ON sale_dead (goods);

-- Units on their way back into Redis. Those without a buyer are new stock.
CREATE TABLE sale_returns (
    id         bigserial PRIMARY KEY,
    goods      text NOT NULL,
    epoch      integer NOT NULL,
    buyer      text,
    units      bigint NOT NULL
);
CREATE INDEX sale_returns_goods ON sale_returns (goods);

-- Barriers that came through the queue, until whoever sent them has seen it.
CREATE TABLE sale_barriers (
    token      text PRIMARY KEY,
    at         bigint NOT NULL
);

-- Every loading of Redis, and why.
CREATE TABLE sale_loads (
    goods      text NOT NULL,
    epoch      integer NOT NULL,
    at         bigint NOT NULL,
    redis_run  text NOT NULL,
    units      bigint NOT NULL,
    why        text NOT NULL,
    PRIMARY KEY (goods, epoch)
);

CREATE TABLE sale_audit (
    id         bigserial PRIMARY KEY,
    goods      text NOT NULL,
    at         bigint NOT NULL,
    by         text NOT NULL,
    what       text NOT NULL,
    -- By which whoever lost the answer to their commit finds it.
    token      text UNIQUE
);
CREATE INDEX sale_audit_goods ON sale_audit (goods, id);
