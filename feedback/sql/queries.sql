-- Every statement on the journal. {schema} is the quoted name of its schema.

-- name: look_up
-- Ids hold no control characters, so one joins them: a text is several times cheaper to send than
-- an array. Result columns as in feedback.standing.Standing.
SELECT id, type, state, code, attempt, run, crashes, fingerprint, result::text, error, reason,
       superseded_by, not_before, created_at, finished_at, effect, token,
       coalesce(lease_until < clock_timestamp(), false),
       topic, partition, kafka_offset, produced_at
FROM {schema}.requests
WHERE id = ANY (string_to_array(%s, E'\x1f'))

-- name: lock_requests
SELECT FROM {schema}.requests WHERE id = ANY (string_to_array(%s, E'\x1f')) ORDER BY id FOR UPDATE

-- name: copy_requests
-- Columns as feedback.copy_rows packs them.
COPY {schema}.requests (kafka_offset, created_at, finished_at, produced_at,
                        attempt, run, crashes, partition,
                        type, state, code, effect, topic,
                        id, fingerprint, key, result,
                        error, reason, reference, payload, headers)
FROM STDIN (FORMAT binary)

-- name: update_request
-- Only while the row is what the look-up saw. A lease of NULL seconds is none.
UPDATE {schema}.requests
SET type = %(type)s, state = %(state)s, code = %(code)s, attempt = %(attempt)s, run = %(run)s,
    crashes = %(crashes)s, effect = %(effect)s, fingerprint = coalesce(%(fingerprint)s, fingerprint),
    result = %(result)s::jsonb, error = %(error)s, reason = %(reason)s,
    payload = %(payload)s, headers = %(headers)s::jsonb,
    key = %(key)s, reference = %(reference)s, token = %(token)s,
    lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
    produced_at = %(produced_at)s, finished_at = %(finished_at)s,
    topic = %(topic)s, partition = %(partition)s, kafka_offset = %(offset)s
WHERE id = %(id)s AND run = %(seen_run)s AND state = %(seen_state)s
  AND token IS NOT DISTINCT FROM %(seen_token)s

-- name: claim_request
INSERT INTO {schema}.requests (kafka_offset, created_at, produced_at, lease_until, attempt, run,
                               partition, id, type, state, code, effect, topic, fingerprint, key,
                               token, reference, payload, headers)
VALUES (%(offset)s, %(created_at)s, %(produced_at)s,
        clock_timestamp() + make_interval(secs => %(lease)s), %(attempt)s, %(run)s,
        %(partition)s, %(id)s, %(type)s, %(state)s, %(code)s, %(effect)s, %(topic)s,
        %(fingerprint)s, %(key)s, %(token)s, %(reference)s, %(payload)s, %(headers)s::jsonb)
ON CONFLICT (id) DO NOTHING

-- name: finish_claim
-- By the token alone: the claim may have become in_doubt meanwhile. The token stays, so that the
-- writer can tell its own row where the answer to its COMMIT was lost.
UPDATE {schema}.requests
SET state = %(state)s, code = %(code)s, result = %(result)s::jsonb, error = %(error)s,
    reason = %(reason)s, lease_until = NULL, finished_at = %(finished_at)s,
    payload = CASE WHEN %(state)s = 'done' THEN NULL ELSE payload END,
    headers = CASE WHEN %(state)s = 'done' THEN NULL ELSE headers END
WHERE id = %(id)s AND token = %(token)s AND run = %(run)s AND state IN ('running', 'in_doubt')

-- name: count_resends
UPDATE {schema}.requests SET resends = resends + %s WHERE id = %s

-- name: add_attempt
-- The run of a claim that was in doubt may end a second time.
INSERT INTO {schema}.attempts AS a (request_id, run, code, error, started_at, ended_at)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (request_id, run) DO UPDATE
SET code = excluded.code, error = excluded.error, ended_at = excluded.ended_at

-- name: add_dead_letter
INSERT INTO {schema}.dead_letters (request_id, reason, detail, topic, partition, kafka_offset,
                                   produced_at, key, headers, payload)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s)
ON CONFLICT DO NOTHING

-- name: transaction_status
SELECT pg_xact_status(%s::text::xid8)

-- name: end_backend
-- Waits until it is gone. No row: it was gone already.
SELECT pg_terminate_backend(pid, %(wait_ms)s)
FROM pg_stat_activity
WHERE pid = %(pid)s AND extract(epoch FROM backend_start)::text = %(start)s

-- name: own_backend
SELECT pid, extract(epoch FROM backend_start)::text
FROM pg_stat_activity WHERE pid = pg_backend_pid()

-- name: deferred_constraints
-- What SET CONSTRAINTS ALL IMMEDIATE changes for the rest of a transaction. A name means all
-- constraints of that name in its schema, so one that others share is set once.
SELECT DISTINCT format('%I.%I', n.nspname, c.conname)
FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
WHERE c.condeferred

-- name: sweep_expired_claims
WITH expired AS (
    SELECT id, created_at FROM {schema}.requests
    WHERE state = 'running' AND lease_until < clock_timestamp()
    ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), doubted AS (
    UPDATE {schema}.requests r
    SET state = 'in_doubt', code = %(code)s, error = %(error)s, crashes = r.crashes + 1,
        lease_until = NULL, finished_at = clock_timestamp()
    FROM expired e WHERE r.id = e.id
    RETURNING r.id, r.type, r.attempt, r.run, r.code, r.error, r.created_at, r.finished_at
), noted AS (
    INSERT INTO {schema}.attempts AS a (request_id, run, code, error, started_at, ended_at)
    SELECT id, run, code, error, created_at, finished_at FROM doubted
    ON CONFLICT (request_id, run) DO NOTHING
)
SELECT id, type, attempt, run, code, error, finished_at FROM doubted ORDER BY id

-- name: add_counters
-- Sorted, so that two clerks that count the same minute cannot deadlock.
INSERT INTO {schema}.counters AS c (minute, type, state, code, n)
SELECT to_timestamp(m), t, s, k, n
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[]) AS u(m, t, s, k, n)
ORDER BY m, t, s, k
ON CONFLICT (minute, type, state, code) DO UPDATE SET n = c.n + excluded.n

-- name: stats
SELECT type, state, code, sum(n)::bigint AS n
FROM {schema}.counters WHERE minute >= date_trunc('minute', %s::timestamptz)
GROUP BY type, state, code ORDER BY type, state, code

-- name: list_requests
-- The conditions are added where it is used.
SELECT id, type, state, code, attempt, run, resends, crashes, fingerprint, result, error, reason,
       key, reference, superseded_by, not_before, effect, topic, partition, kafka_offset,
       produced_at, created_at, finished_at
FROM {schema}.requests

-- name: show_request
SELECT id, type, state, code, attempt, run, resends, crashes, fingerprint, result, error, reason,
       key, reference, superseded_by, not_before, effect, token, lease_until,
       topic, partition, kafka_offset, produced_at, created_at, finished_at, headers, payload
FROM {schema}.requests WHERE id = %s

-- name: show_attempts
SELECT run, code, error, started_at, ended_at
FROM {schema}.attempts WHERE request_id = %s ORDER BY run
