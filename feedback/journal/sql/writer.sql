-- The executor's statements, for feedback/journal/writer.py. {schema} is the quoted name of its schema.

-- name: find_rows
-- The ids come as one text, joined. Result columns as in feedback.journal.rows.StoredRequest.
-- The inner SELECT hides from the planner how many they are: of 500 it would think that they are in
-- as many pages, and read the whole of a table of up to 40,000 rows for each chunk.
SELECT id, type, state, code, attempt, run, crashes, fingerprint, result::text, error, reason,
       superseded_by, token, topic, partition, kafka_offset, used, not_before, window_start,
       coalesce_key, produced_at, status_ttl, created_at, finished_at,
       CASE WHEN fingerprint IS NULL OR own_fingerprint THEN payload END,
       CASE WHEN fingerprint IS NULL OR own_fingerprint THEN headers::text END, own_fingerprint,
       lost_claims
FROM {schema}.requests WHERE id = ANY ((SELECT string_to_array(%s, E'\x1f'))::text[])

-- name: update_row
-- Of a message whose payload could not be compared with the row's only how long it is wanted and who
-- asks is taken over, and that nobody could say what holds it back. A row that was parked, or followed
-- another, learns its reference here.
UPDATE {schema}.requests r
SET state = %(state)s, code = %(code)s, attempt = %(attempt)s, used = %(used)s, run = %(run)s,
    crashes = %(crashes)s, lost_claims = %(lost_claims)s,
    fingerprint = coalesce(%(fingerprint)s, fingerprint),
    result = %(result)s, error = %(error)s, reason = %(reason)s, key = %(key)s,
    reference = coalesce(%(reference)s, r.reference),
    payload = CASE WHEN %(keeps_payload)s THEN payload ELSE %(payload)s END,
    headers = CASE WHEN %(keeps_payload)s THEN (
        SELECT coalesce(jsonb_agg(h), '[]') FROM (
            SELECT h FROM jsonb_array_elements(r.headers) h
            WHERE h ->> 0 NOT IN ('ce_expirytime', 'ce_replyto', 'ce_notbefore', 'oncepool-hold-open')
            UNION ALL
            SELECT h FROM jsonb_array_elements(%(headers)s::jsonb) h
            WHERE h ->> 0 IN ('ce_expirytime', 'ce_replyto', 'ce_notbefore', 'oncepool-hold-open')
        ) merged
    ) ELSE %(headers)s END,
    topic = %(topic)s, partition = %(partition)s,
    kafka_offset = %(kafka_offset)s, finished_at = %(finished_at)s, token = NULL,
    lease_until = NULL, not_before = %(not_before)s, due_at = %(due_at)s,
    window_start = %(window_start)s, coalesce_key = %(coalesce_key)s,
    superseded_by = %(superseded_by)s, status_ttl = %(status_ttl)s,
    own_fingerprint = CASE WHEN %(keeps_payload)s THEN own_fingerprint ELSE %(own_fingerprint)s END
WHERE id = %(id)s AND run = %(was_run)s AND state = %(was_state)s
  AND token IS NOT DISTINCT FROM %(was_token)s

-- name: delete_row
-- With its timeline: a later row of its id counts its runs from 1 again. What operators did stays.
WITH gone AS (
    DELETE FROM {schema}.requests
    WHERE id = %(id)s AND run = %(was_run)s AND state = %(was_state)s
      AND token IS NOT DISTINCT FROM %(was_token)s
    RETURNING id
), runs AS (
    DELETE FROM {schema}.attempts WHERE request_id = (SELECT id FROM gone)
)
SELECT FROM gone

-- name: finish_rows
-- Claimed rows that are done: one statement for all of a chunk, after lock_rows. They are found by
-- ctid, as a join on id becomes a scan of the table; and a row that its holder's maintenance process renewed
-- since the statement began has another ctid, so it has to be locked before.
UPDATE {schema}.requests r
SET state = 'done', code = u.code, attempt = u.attempt, used = u.used, run = u.new_run, crashes = u.crashes,
    fingerprint = coalesce(u.fingerprint, r.fingerprint), own_fingerprint = u.own_fingerprint,
    result = u.result::jsonb, error = NULL,
    lost_claims = 0, reason = NULL, finished_at = u.finished_at, payload = NULL, headers = NULL, token = NULL,
    lease_until = NULL, due_at = NULL, not_before = NULL, window_start = NULL, coalesce_key = NULL
FROM unnest(
    %(ids)s::text[], %(runs)s::int[], %(tokens)s::text[], %(codes)s::text[], %(attempts)s::int[],
    %(used)s::int[], %(new_runs)s::int[], %(crashes)s::int[], %(fingerprints)b::bytea[], %(owns)s::bool[],
    %(results)s::text[], %(ends)s::timestamptz[]
) AS u(id, run, token, code, attempt, used, new_run, crashes, fingerprint, own_fingerprint, result, finished_at)
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests WHERE id = ANY (%(ids)s)
)) AND r.id = u.id AND r.run = u.run AND r.state = 'waiting' AND r.token = u.token

-- name: insert_missing_row
INSERT INTO {schema}.requests (
    id, type, state, code, attempt, run, key, payload, headers, topic, partition, kafka_offset,
    produced_at, effect, not_before, due_at, asked_by
) VALUES (
    %(id)s, %(type)s, %(state)s, %(code)s, %(attempt)s, %(run)s, %(key)s, %(payload)s,
    %(headers)s, %(topic)s, %(partition)s, %(kafka_offset)s, %(produced_at)s, %(effect)s,
    %(not_before)s, %(due_at)s, %(asked_by)s
)
ON CONFLICT (id) DO NOTHING

-- name: add_attempt
INSERT INTO {schema}.attempts (request_id, run, code, error, started_at, ended_at, traceback)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: lock_rows
-- Before an UPDATE by id alone, which would lock in the order of its plan.
SELECT FROM {schema}.requests WHERE id = ANY (%s) ORDER BY id FOR UPDATE

-- name: add_resends
-- Each message once: not the one that was counted last, nor the one that the row is of, nor one that
-- is read again and lies before the one that was counted last.
UPDATE {schema}.requests SET resends = resends + 1, resent_from = %(places)s::jsonb ->> id
WHERE id = ANY (%(ids)s) AND resent_from IS DISTINCT FROM %(places)s::jsonb ->> id
  AND concat_ws('/', topic, partition, kafka_offset) <> %(places)s::jsonb ->> id
  AND NOT (
      id = ANY (%(again)s)
      AND resent_from IS NOT NULL
      AND split_part(resent_from, '/', 1) = split_part(%(places)s::jsonb ->> id, '/', 1)
      AND split_part(resent_from, '/', 2) = split_part(%(places)s::jsonb ->> id, '/', 2)
      AND split_part(resent_from, '/', 3)::bigint
          > split_part(%(places)s::jsonb ->> id, '/', 3)::bigint
  )

-- name: add_letter
-- A conflict that is sent again and again is one dead letter, as long as an operator sees it in the
-- list. One that is being moved out of that is locked until it is marked, and counts no more.
INSERT INTO {schema}.dead_letters (
    request_id, reason, detail, topic, partition, kafka_offset, produced_at, key, headers, payload
)
SELECT %(id)s, %(reason)s, %(detail)s, %(topic)s, %(partition)s, %(offset)s, %(produced)s,
       %(key)s, %(headers)s, %(payload)s
WHERE %(reason)s <> 'conflict' OR NOT EXISTS (
    SELECT FROM {schema}.dead_letters d
    WHERE d.request_id = %(id)s AND d.reason = 'conflict' AND d.detail = %(detail)s
      AND d.payload IS NOT DISTINCT FROM %(payload)s AND d.retried_at IS NULL
    FOR KEY SHARE SKIP LOCKED
)
ON CONFLICT DO NOTHING

-- name: claim_external
INSERT INTO {schema}.requests (
    id, type, state, code, attempt, used, run, crashes, fingerprint, key, reference, payload,
    headers, topic, partition, kafka_offset, produced_at, status_ttl, own_fingerprint, effect,
    token, lease_until
) VALUES (
    %(id)s, %(type)s, 'running', 'claimed', %(attempt)s, %(used)s, %(run)s, %(crashes)s,
    %(fingerprint)s, %(key)s, %(reference)s, %(payload)s, %(headers)s, %(topic)s, %(partition)s,
    %(kafka_offset)s, %(produced_at)s, %(status_ttl)s, %(own_fingerprint)s, 'external', %(token)s,
    now() + make_interval(secs => %(lease)s)
)
ON CONFLICT DO NOTHING

-- name: claim_external_again
UPDATE {schema}.requests
SET state = 'running', code = 'claimed', attempt = %(attempt)s, used = %(used)s, run = %(run)s,
    crashes = %(crashes)s, lost_claims = 0, fingerprint = coalesce(%(fingerprint)s, fingerprint),
    payload = %(payload)s, headers = %(headers)s, topic = %(topic)s, partition = %(partition)s,
    kafka_offset = %(kafka_offset)s, status_ttl = %(status_ttl)s,
    own_fingerprint = %(own_fingerprint)s, effect = 'external', token = %(token)s,
    lease_until = now() + make_interval(secs => %(lease)s), finished_at = NULL, error = NULL,
    reason = NULL, due_at = NULL, not_before = NULL
WHERE id = %(id)s AND run = %(was_run)s AND state = %(was_state)s
  AND token IS NOT DISTINCT FROM %(was_token)s

-- name: finish_external
-- A row that waits has a token while it is claimed, and only then. What was told to be in doubt and
-- goes on all the same is told so under a higher run number, as a lower rank of one run is not taken.
UPDATE {schema}.requests
SET run = run + (state = 'in_doubt' AND %(state)s IN ('waiting', 'failed'))::int, state = %(state)s, code = %(code)s, result = %(result)s, error = %(error)s,
    reason = %(reason)s, payload = %(payload)s, headers = %(headers)s, crashes = %(crashes)s,
    finished_at = %(finished_at)s, lease_until = NULL, attempt = %(attempt)s, used = %(used)s,
    not_before = %(not_before)s, due_at = %(due_at)s, lost_claims = 0,
    token = CASE %(state)s WHEN 'waiting' THEN NULL ELSE token END
WHERE id = %(id)s AND token = %(token)s AND state IN ('running', 'in_doubt')
RETURNING run

-- name: stays_in_doubt
-- Its check was asked, and could not tell.
UPDATE {schema}.requests SET lost_claims = 0
WHERE id = %s AND token = %s AND state = 'in_doubt' AND lost_claims > 0

-- name: probe_write
-- Always rolled back. A place of its own, so that two who probe do not wait for each other.
INSERT INTO {schema}.dead_letters (
    reason, detail, topic, partition, kafka_offset, produced_at, payload
) VALUES (
    'malformed', 'probe', '', -1, ('x' || substr(md5(random()::text), 1, 15))::bit(60)::bigint,
    now(), %s
)
