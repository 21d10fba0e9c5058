-- Requests of a reference that may wait again: sent again, retried or resolved. While there is one,
-- pruning keeps what `coalesced` remembers of the reference. A success of any type is in none.

CREATE INDEX requests_open_references ON requests (type, coalesce_key)
    WHERE coalesce_key IS NOT NULL
      AND state IN ('failed', 'dead', 'cancelled', 'in_doubt', 'running');
