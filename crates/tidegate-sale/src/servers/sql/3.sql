ALTER TABLE sale_goods
    -- Of this epoch's orders: the highest number that was acknowledged, and the one up to which
    -- all were, as far as any process has heard.
    ADD acked bigint NOT NULL DEFAULT 0,
    ADD sure  bigint NOT NULL DEFAULT 0,
    -- Names the loading that was begun last: every process says of it that its own orders are
    -- written. It is random, and so never the same again, whatever the database forgets.
    ADD round bigint NOT NULL DEFAULT 0;

-- Processes that live. One that has not been seen for a while has ended.
CREATE TABLE sale_processes (
    owner      text PRIMARY KEY,
    seen       timestamptz NOT NULL,
    -- Which Redis it uses, and which run of it; nothing while it has none.
    redis      text NOT NULL,
    redis_run  text NOT NULL
);

-- The last round of which a process has said that its own orders are written, and the numbers
-- of an epoch of which it had heard by then that they were acknowledged.
CREATE TABLE sale_reports (
    goods      text NOT NULL,
    owner      text NOT NULL,
    round      bigint NOT NULL,
    epoch      integer NOT NULL,
    acked      bigint NOT NULL,
    sure       bigint NOT NULL,
    PRIMARY KEY (goods, owner)
);
