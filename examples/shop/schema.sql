-- The shop's own tables. Safe to run again; examples/shop/tables.py runs it.
--
-- request_id has no unique index on purpose: it would hide a request that ran twice, and that
-- none does is what the demo proves by counting.

CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.articles (
    article text PRIMARY KEY,
    price_cents bigint NOT NULL CHECK (price_cents > 0),
    stock bigint NOT NULL CHECK (stock >= 0)
);

CREATE TABLE IF NOT EXISTS shop.orders (
    order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL,
    customer text NOT NULL,
    total_cents bigint NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS shop.order_lines (
    order_id bigint NOT NULL REFERENCES shop.orders,
    article text NOT NULL REFERENCES shop.articles,
    count int NOT NULL,
    price_cents bigint NOT NULL,
    PRIMARY KEY (order_id, article)
);

CREATE TABLE IF NOT EXISTS shop.invoices (
    invoice_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL,
    order_id bigint NOT NULL,
    total_cents bigint NOT NULL,
    pdf bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS shop.page_views (
    request_id text NOT NULL,
    path text NOT NULL,
    visitor text,
    viewed_at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS shop.reminders (
    request_id text NOT NULL,
    order_id bigint NOT NULL,
    customer text NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Who goes where, and at which call he comes.
CREATE TABLE IF NOT EXISTS shop.carriers (
    region text PRIMARY KEY,
    carrier text NOT NULL,
    comes_at_call int NOT NULL CHECK (comes_at_call > 0)
);

CREATE TABLE IF NOT EXISTS shop.parcels (
    parcel_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL,
    order_id bigint NOT NULL,
    carrier text NOT NULL
);

CREATE TABLE IF NOT EXISTS shop.stock_counts (
    request_id text NOT NULL,
    article text NOT NULL REFERENCES shop.articles,
    stock bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO shop.articles (article, price_cents, stock)
VALUES
    ('tea', 450, 1000000000),
    ('coffee', 890, 1000000000),
    ('mug', 1290, 1000000000),
    ('kettle', 3990, 1000000000),
    ('last-one', 9900, 1)
ON CONFLICT DO NOTHING;

INSERT INTO shop.carriers (region, carrier, comes_at_call)
VALUES
    ('mainland', 'van', 1),
    ('island', 'ferry', 2),
    ('mountain', 'mule', 3)
ON CONFLICT DO NOTHING;
