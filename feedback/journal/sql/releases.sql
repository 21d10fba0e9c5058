-- Claims given back, for feedback/journal/releases.py. {schema} is the quoted name of the journal's schema.

-- name: lock_claims
-- How it locks is added where it is used.
SELECT id, coalesce_key IS NOT NULL FROM {schema}.requests
WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'
  AND (id, token) IN (SELECT * FROM unnest(%(ids)s::text[], %(tokens)s::text[]))
ORDER BY id

-- name: supersede_claims
-- Claims that are given back while a newer one waits.
WITH lost AS (
    SELECT r.id, (
        SELECT n.id FROM (
            SELECT id, produced_at, created_at FROM {schema}.requests
            WHERE state = 'waiting' AND token IS NULL AND coalesce_key IS NOT NULL
              AND type = r.type AND coalesce_key = r.coalesce_key
            UNION ALL
            SELECT id, produced_at, created_at FROM {schema}.requests
            WHERE state = 'waiting' AND token IS NOT NULL AND coalesce_key IS NOT NULL
              AND type = r.type AND coalesce_key = r.coalesce_key
        ) n
        WHERE (n.produced_at, n.created_at, n.id) > (r.produced_at, r.created_at, r.id)
        ORDER BY n.produced_at DESC, n.created_at DESC, n.id DESC LIMIT 1
    ) AS winner
    FROM {schema}.requests r WHERE r.id = ANY (%(ids)s) AND r.coalesce_key IS NOT NULL
)
UPDATE {schema}.requests r
SET state = 'superseded', code = 'superseded', superseded_by = lost.winner, token = NULL,
    lease_until = NULL, due_at = NULL, finished_at = clock_timestamp()
FROM lost WHERE r.id = ANY (%(ids)s) AND r.id = lost.id AND lost.winner IS NOT NULL
RETURNING r.id, r.type, r.run, r.attempt, r.superseded_by, r.status_ttl, r.headers::text

-- name: lock_older
-- What waits unclaimed under the references of these, in the order in which all lock several rows.
SELECT FROM {schema}.requests WHERE id = ANY (ARRAY(
    SELECT o.id FROM {schema}.requests r JOIN {schema}.requests o
      ON o.type = r.type AND o.coalesce_key = r.coalesce_key
    WHERE r.id = ANY (%(ids)s) AND r.coalesce_key IS NOT NULL
      AND o.state = 'waiting' AND o.token IS NULL AND o.coalesce_key IS NOT NULL AND o.id <> r.id
)) ORDER BY id FOR UPDATE

-- name: supersede_older
-- What waits and is older than a claim that is given back. Each statement sees what was committed
-- before it: a newer one may have come since supersede_claims, and then release_claims fails.
UPDATE {schema}.requests o
SET state = 'superseded', code = 'superseded', superseded_by = r.id,
    due_at = NULL, finished_at = clock_timestamp()
FROM {schema}.requests r
WHERE r.id = ANY (%(ids)s) AND r.state = 'waiting' AND r.coalesce_key IS NOT NULL
  AND o.state = 'waiting' AND o.token IS NULL AND o.coalesce_key IS NOT NULL
  AND o.type = r.type AND o.coalesce_key = r.coalesce_key
  AND (o.produced_at, o.created_at, o.id) < (r.produced_at, r.created_at, r.id)
RETURNING o.id, o.type, o.run, o.attempt, o.superseded_by, o.status_ttl, o.headers::text

-- name: release_claims
-- In its place it is due since it was before the claim.
UPDATE {schema}.requests
SET token = NULL, lease_until = NULL, due_at = greatest(not_before, CASE
        WHEN id = ANY (%(in_place)s) THEN least(created_at, statement_timestamp())
        ELSE statement_timestamp()
    END),
    lost_claims = greatest(lost_claims, (id = ANY (%(begun)s))::int)
WHERE id = ANY (%(ids)s) AND state || '' = 'waiting'
