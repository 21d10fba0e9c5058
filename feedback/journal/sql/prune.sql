-- What `oncepool prune` deletes, a range of pages at a time; feedback/operations/prune.py. Rows that somebody
-- has locked are left for the next time, so it never waits and nobody is in a deadlock with it.

-- name: pages
SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::bigint

-- name: prune_requests
-- The end is by the clock of the machine that ran it, the beginning by the database's: of a worker
-- whose clock had stopped at 1970 nothing may be forgotten that a copy may still come of.
WITH old AS MATERIALIZED (
    SELECT ctid FROM {schema}.requests
    WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND finished_at < %(before)s
      AND created_at < %(before)s AND state = ANY (%(states)s)
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.requests WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING id
), runs AS (
    DELETE FROM {schema}.attempts WHERE request_id = ANY (ARRAY(SELECT id FROM gone))
    RETURNING 1
), moves AS (
    DELETE FROM {schema}.transitions WHERE request_id = ANY (ARRAY(SELECT id FROM gone))
    RETURNING 1
)
SELECT ARRAY(SELECT id FROM gone), (SELECT count(*) FROM runs), (SELECT count(*) FROM moves), statement_timestamp()

-- name: prune_attempts
-- Of requests that have no row any more: older versions left those of such without effects that were done.
DELETE FROM {schema}.attempts a
WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND ended_at < %(before)s
  AND NOT EXISTS (SELECT FROM {schema}.requests r WHERE r.id = a.request_id)

-- name: prune_transitions
DELETE FROM {schema}.transitions t
WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND at < %(before)s
  AND NOT EXISTS (SELECT FROM {schema}.requests r WHERE r.id = t.request_id)

-- name: prune_dead_letters
DELETE FROM {schema}.dead_letters
WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND retried_at < %(before)s

-- name: prune_coalesced
-- Not while a request of the reference may wait again: nothing else says then that a newer one was
-- started. Nor while the one that was started has its row: a producer's time says nothing of how long
-- ago that was. Scalar subqueries, each along an index of its own: a join might read the whole table.
DELETE FROM {schema}.coalesced WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.coalesced c
    WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND produced_at < %(before)s
      AND (SELECT 1 FROM {schema}.requests r WHERE r.id = c.request_id) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state IN ('failed', 'dead', 'cancelled', 'in_doubt', 'running') LIMIT 1
      ) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state = 'waiting' AND r.token IS NULL LIMIT 1
      ) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state = 'waiting' AND r.token IS NOT NULL LIMIT 1
      ) IS NULL
    FOR UPDATE SKIP LOCKED))

-- name: prune_counters
DELETE FROM {schema}.counters WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.counters
    WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND minute < %(before)s
    FOR UPDATE SKIP LOCKED))

-- name: prune_operator_changes
DELETE FROM {schema}.operator_changes
WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND at < %(before)s

-- name: prunable
WITH old AS MATERIALIZED (
    SELECT id FROM {schema}.requests
    WHERE finished_at < %(before)s AND created_at < %(before)s AND state = ANY (%(states)s)
)
SELECT
    (SELECT count(*) FROM old),
    (SELECT count(*) FROM {schema}.attempts a WHERE a.request_id IN (SELECT id FROM old)
     OR (a.ended_at < %(before)s
         AND NOT EXISTS (SELECT FROM {schema}.requests r WHERE r.id = a.request_id))),
    (SELECT count(*) FROM {schema}.transitions t WHERE t.request_id IN (SELECT id FROM old)
     OR (t.at < %(before)s
         AND NOT EXISTS (SELECT FROM {schema}.requests r WHERE r.id = t.request_id))),
    (SELECT count(*) FROM {schema}.dead_letters WHERE retried_at < %(before)s),
    (SELECT count(*) FROM {schema}.coalesced c
     WHERE produced_at < %(before)s
      AND (
        SELECT 1 FROM {schema}.requests r WHERE r.id = c.request_id
            AND NOT (r.finished_at < %(before)s AND r.created_at < %(before)s
                     AND r.state = ANY (%(states)s))
      ) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state IN ('failed', 'dead', 'cancelled', 'in_doubt', 'running')
            AND NOT (r.finished_at < %(before)s AND r.created_at < %(before)s
                     AND r.state = ANY (%(states)s)) LIMIT 1
      ) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state = 'waiting' AND r.token IS NULL LIMIT 1
      ) IS NULL AND (
        SELECT 1 FROM {schema}.requests r
        WHERE r.type = c.type AND r.coalesce_key = c.coalesce_key AND r.coalesce_key IS NOT NULL
          AND r.state = 'waiting' AND r.token IS NOT NULL LIMIT 1
      ) IS NULL),
    (SELECT count(*) FROM {schema}.counters WHERE minute < %(before)s),
    (SELECT count(*) FROM {schema}.operator_changes WHERE at < %(before)s)
