-- The storefront's own tables, in a database of its own. Safe to run again.

CREATE SCHEMA IF NOT EXISTS storefront;

CREATE TABLE IF NOT EXISTS storefront.orders (
    order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    card text NOT NULL,
    amount_cents bigint NOT NULL CHECK (amount_cents > 0),
    state text NOT NULL DEFAULT 'placed'
        CHECK (state IN ('placed', 'paid', 'declined', 'unsettled', 'unpaid')),
    charge_id text,
    charge_end text,
    placed_at timestamptz NOT NULL DEFAULT now()
);

-- What still has to come to an end.
CREATE INDEX IF NOT EXISTS orders_open ON storefront.orders (state, order_id)
    WHERE state IN ('placed', 'unsettled');
