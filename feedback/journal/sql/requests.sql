-- What operators read of requests, for feedback/operations/request_reads.py.
-- {schema} is the quoted name of the journal's schema.

-- name: list_requests
-- The conditions are added where it is used.
SELECT id, type, state, code, attempt, run, resends, crashes, fingerprint, result, error, reason,
       key, reference, superseded_by, not_before, due_at, used, effect, topic, partition,
       kafka_offset, produced_at, created_at, finished_at
FROM {schema}.requests

-- name: show_request
SELECT id, type, state, code, attempt, run, resends, crashes, lost_claims, fingerprint, result, error,
       reason, key, reference, superseded_by, not_before, due_at, used, coalesce_key, status_ttl, effect,
       token, lease_until, asked_by, topic, partition, kafka_offset, produced_at, created_at, finished_at, headers,
       payload
FROM {schema}.requests WHERE id = %s

-- name: show_attempts
SELECT * FROM (
    SELECT run, code, error, started_at, ended_at, traceback
    FROM {schema}.attempts WHERE request_id = %s ORDER BY run DESC LIMIT %s
) latest ORDER BY run

-- name: select_ids
-- The conditions are added where it is used.
SELECT id FROM {schema}.requests

-- name: choose
-- The conditions are added where it is used.
SELECT id, type, state, run FROM {schema}.requests

-- name: show_transitions
SELECT at, action, from_state, to_state, run, who, why FROM (
    SELECT * FROM {schema}.transitions WHERE request_id = %s ORDER BY id DESC LIMIT %s
) latest ORDER BY id

-- name: last_changes
-- Of rows that have not ended: when their last run did, or an operator put them to where they are.
SELECT u.id, greatest(
    (SELECT ended_at FROM {schema}.attempts a
     WHERE a.request_id = u.id AND a.run <= u.run ORDER BY a.run DESC LIMIT 1),
    (SELECT at FROM {schema}.transitions t
     WHERE t.request_id = u.id AND t.run <= u.run ORDER BY t.id DESC LIMIT 1)
) FROM unnest(%(ids)s::text[], %(runs)s::int[]) AS u(id, run)

-- name: asked_by
-- For feedback/operations/follow_ups.py. `types`: as in inspection.sql.
SELECT r.asked_by AS id, a.type, a.state, a.code
FROM {schema}.requests r LEFT JOIN {schema}.requests a ON a.id = r.asked_by
WHERE r.id = %(id)s AND r.asked_by IS NOT NULL
  AND (%(types)s::text[] IS NULL OR a.type LIKE ANY (%(types)s))

-- name: asked_for
SELECT id, type, state, code FROM {schema}.requests
WHERE asked_by = %(id)s AND (%(types)s::text[] IS NULL OR type LIKE ANY (%(types)s))
ORDER BY id LIMIT %(limit)s
