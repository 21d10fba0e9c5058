-- Housekeeping, for feedback/journal/housekeeping.py. {schema} is the quoted name of the journal's schema.

-- name: lock_to_write
LOCK TABLE {schema}.requests IN ROW EXCLUSIVE MODE NOWAIT

-- name: sweep_expired_claims
-- statement_timestamp(): those whose leases ran out before it had to wait for a lock.
WITH expired AS (
    SELECT id, created_at FROM {schema}.requests
    WHERE state = 'running' AND lease_until < statement_timestamp()
    ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), doubted AS (
    UPDATE {schema}.requests r
    SET state = 'in_doubt', code = %(code)s, error = %(error)s, crashes = r.crashes + 1,
        lease_until = NULL, finished_at = clock_timestamp()
    FROM expired e WHERE r.id = e.id
    RETURNING r.id, r.type, r.attempt, r.run, r.code, r.error, r.created_at, r.finished_at,
              r.status_ttl, CASE WHEN NOT r.own_fingerprint THEN r.fingerprint END AS fingerprint,
              r.headers::text AS headers
), noted AS (
    INSERT INTO {schema}.attempts AS a (request_id, run, code, error, started_at, ended_at)
    SELECT id, run, code, error, created_at, finished_at FROM doubted
    ON CONFLICT (request_id, run) DO NOTHING
)
SELECT id, type, attempt, run, code, error, NULL, finished_at, status_ttl, fingerprint,
       headers
FROM doubted ORDER BY id

-- name: end_lost_calls
-- Those that somebody else has locked are just being ended: by an operator, or by a sweep.
WITH lost AS (
    SELECT r.id, r.created_at, u.code, u.reason, u.blamed FROM {schema}.requests r
    JOIN unnest(%(tokens)s::text[], %(codes)s::text[], %(reasons)s::text[], %(blamed)s::bool[])
         AS u(token, code, reason, blamed) ON r.token = u.token
    WHERE r.state = 'running' ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
), doubted AS (
    UPDATE {schema}.requests r
    SET state = 'in_doubt', code = l.code, reason = l.reason,
        crashes = r.crashes + l.blamed::int,
        lease_until = NULL, finished_at = clock_timestamp()
    FROM lost l WHERE r.id = l.id
    RETURNING r.id, r.type, r.attempt, r.run, r.code, r.reason, r.created_at, r.finished_at,
              r.status_ttl, CASE WHEN NOT r.own_fingerprint THEN r.fingerprint END AS fingerprint,
              r.headers::text AS headers
), noted AS (
    INSERT INTO {schema}.attempts AS a (request_id, run, code, error, started_at, ended_at)
    SELECT id, run, code, reason, created_at, finished_at FROM doubted
    ON CONFLICT (request_id, run) DO NOTHING
)
SELECT id, type, attempt, run, code, NULL, reason, finished_at, status_ttl, fingerprint,
       headers
FROM doubted ORDER BY id

-- name: add_counters
-- Sorted, so that two instances that count the same minute cannot deadlock.
INSERT INTO {schema}.counters AS c (minute, type, state, code, n)
SELECT to_timestamp(m), t, s, k, n
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[]) AS u(m, t, s, k, n)
ORDER BY m, t, s, k
ON CONFLICT (minute, type, state, code) DO UPDATE SET n = c.n + excluded.n
