-- What operators move: feedback/operations/request_actions.py. Each statement locks the rows in the order of their
-- ids, as all do that lock several, and moves those that still stand where it expects them. `run` is
-- raised, so that whoever holds the old one misses; `kept` saves the run whose error is cleared. With
-- `runs` (JSON: id -> run) a row is moved only in the run in which it was seen.
-- A coalescing row is looked for in both partial indexes, so two branches.

-- name: retry_requests
WITH chosen AS (
    SELECT id, state, code, run, coalesce(error, reason) AS error, created_at, finished_at, headers
    FROM {schema}.requests r
    WHERE id = ANY (%(ids)s) AND state = ANY (%(states)s) AND payload IS NOT NULL
      AND (%(runs)s::jsonb IS NULL OR run = (%(runs)s::jsonb ->> id)::int)
      AND (coalesce_key IS NULL OR NOT EXISTS (
          SELECT FROM {schema}.requests w
          WHERE w.type = r.type AND w.coalesce_key = r.coalesce_key AND w.state = 'waiting'
            AND w.token IS NULL
          UNION ALL
          SELECT FROM {schema}.requests w
          WHERE w.type = r.type AND w.coalesce_key = r.coalesce_key AND w.state = 'waiting'
            AND w.token IS NOT NULL
          UNION ALL
          SELECT FROM {schema}.coalesced c LEFT JOIN {schema}.requests n ON n.id = c.request_id
          WHERE c.type = r.type AND c.coalesce_key = r.coalesce_key AND c.request_id <> r.id
            AND (c.produced_at, coalesce(n.created_at, '-infinity'), c.request_id)
                > (r.produced_at, r.created_at, r.id)))
    ORDER BY id FOR UPDATE OF r
), moved AS (
    UPDATE {schema}.requests r
    SET state = 'waiting', code = 'retried', run = r.run + 1, attempt = 1, used = 0, crashes = 0,
        lost_claims = 0,
        not_before = statement_timestamp(), due_at = statement_timestamp(),
        window_start = CASE WHEN r.coalesce_key IS NOT NULL THEN statement_timestamp() END,
        token = NULL, lease_until = NULL, finished_at = NULL,
        error = NULL, reason = %(why)s
    FROM chosen c WHERE r.id = c.id
    RETURNING r.id, r.type, c.state AS from_state, r.state, r.code, r.attempt, r.run,
              statement_timestamp() AS at, r.fingerprint, r.own_fingerprint, r.result, r.error,
              r.reason, r.due_at, r.status_ttl, c.headers
), kept AS (
    INSERT INTO {schema}.attempts (request_id, run, code, error, started_at, ended_at)
    SELECT id, run, code, error, coalesce(finished_at, created_at),
           coalesce(finished_at, created_at)
    FROM chosen WHERE state IN ('failed', 'dead', 'in_doubt')
    ON CONFLICT (request_id, run) DO NOTHING
), noted AS (
    INSERT INTO {schema}.transitions (run, request_id, action, from_state, to_state, who, why)
    SELECT run, id, %(action)s, from_state, state, %(who)s, %(why)s FROM moved ORDER BY id
)
SELECT id, type, from_state, state, code, attempt, run, at, fingerprint, own_fingerprint,
       result::text, error, reason, due_at, status_ttl, headers
FROM moved ORDER BY id

-- name: end_requests
-- Columns as in retry_requests. A row of state `waiting` only where nobody has claimed it, or the
-- claim's lease is over.
WITH chosen AS (
    SELECT id, state, code, run, coalesce(error, reason) AS error, created_at, finished_at, headers
    FROM {schema}.requests
    WHERE id = ANY (%(ids)s) AND state = %(from_state)s
      AND (%(runs)s::jsonb IS NULL OR run = (%(runs)s::jsonb ->> id)::int)
      AND (state <> 'waiting' OR token IS NULL
           OR coalesce(lease_until, due_at) <= clock_timestamp())
    ORDER BY id FOR UPDATE
), moved AS (
    UPDATE {schema}.requests r
    SET state = %(to_state)s, code = %(code)s, run = r.run + 1,
        result = %(result)s::jsonb, reason = %(why)s,
        error = CASE WHEN %(to_state)s = 'failed' THEN r.error END,
        payload = CASE WHEN %(to_state)s <> 'done' THEN r.payload END,
        headers = CASE WHEN %(to_state)s <> 'done' THEN r.headers END,
        token = NULL, lease_until = NULL, due_at = NULL, window_start = NULL,
        finished_at = statement_timestamp()
    FROM chosen c WHERE r.id = c.id
    RETURNING r.id, r.type, c.state AS from_state, r.state, r.code, r.attempt, r.run,
              r.finished_at AS at, r.fingerprint, r.own_fingerprint, r.result, r.error, r.reason,
              r.due_at, r.status_ttl, c.headers
), kept AS (
    INSERT INTO {schema}.attempts (request_id, run, code, error, started_at, ended_at)
    SELECT id, run, code, error, coalesce(finished_at, created_at),
           coalesce(finished_at, created_at)
    FROM chosen WHERE state IN ('dead', 'in_doubt')
    ON CONFLICT (request_id, run) DO NOTHING
), noted AS (
    INSERT INTO {schema}.transitions (run, request_id, action, from_state, to_state, who, why)
    SELECT run, id, %(action)s, from_state, state, %(who)s, %(why)s FROM moved ORDER BY id
), told AS (
    INSERT INTO {schema}.results (request_id, type, state, code, result)
    SELECT id, type, state, code, result FROM moved WHERE %(results)s ORDER BY id
)
SELECT id, type, from_state, state, code, attempt, run, at, fingerprint, own_fingerprint,
       result::text, error, reason, due_at, status_ttl, headers
FROM moved ORDER BY id

-- name: newest_first
SELECT id FROM {schema}.requests WHERE id = ANY (%s)
ORDER BY produced_at DESC, created_at DESC, id DESC

-- name: in_retry_order
-- What coalesces comes last, and of that the newest first: the older ones of a reference are refused
-- then, in whichever statement they come. The others keep the order in which they were made.
SELECT id FROM {schema}.requests WHERE id = ANY (%s)
ORDER BY coalesce_key IS NOT NULL, CASE WHEN coalesce_key IS NULL THEN produced_at END,
         produced_at DESC, created_at DESC, id DESC

-- name: that_expire
SELECT id, headers FROM {schema}.requests
WHERE id = ANY (%s) AND headers @> '[["ce_expirytime"]]'

-- name: why_not
-- What keeps requests from being moved. `newer` is the id of one that coalescing prefers.
SELECT id, state, code, run, superseded_by, due_at, payload IS NULL AS gone,
       state = 'waiting' AND token IS NOT NULL
           AND coalesce(lease_until, due_at) > clock_timestamp() AS claimed,
       CASE WHEN coalesce_key IS NOT NULL THEN coalesce(
           (SELECT w.id FROM {schema}.requests w
            WHERE w.type = r.type AND w.coalesce_key = r.coalesce_key AND w.state = 'waiting'
              AND w.token IS NULL AND w.id <> r.id LIMIT 1),
           (SELECT w.id FROM {schema}.requests w
            WHERE w.type = r.type AND w.coalesce_key = r.coalesce_key AND w.state = 'waiting'
              AND w.token IS NOT NULL AND w.id <> r.id LIMIT 1),
           (SELECT c.request_id FROM {schema}.coalesced c
            LEFT JOIN {schema}.requests n ON n.id = c.request_id
            WHERE c.type = r.type AND c.coalesce_key = r.coalesce_key AND c.request_id <> r.id
              AND (c.produced_at, coalesce(n.created_at, '-infinity'), c.request_id)
                  > (r.produced_at, r.created_at, r.id)))
       END AS newer
FROM {schema}.requests r WHERE id = ANY (%s)
