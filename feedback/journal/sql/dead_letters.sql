-- Dead letters: messages that could not become a request, and dead requests. feedback/operations/dead_letters.py
-- lists them, feedback/operations/dead_letter_actions.py moves them.

-- name: list_dead
-- Behind it stands either half of view `dead`, with conditions, and the union of both is made where it
-- is used: each has an index in the order of time, of which the view knows nothing.
SELECT kind, id, request_id, type, reason, detail, at, topic, partition, kafka_offset, key,
       headers, payload

-- name: dead_requests_half
(SELECT 'request' AS kind, NULL::bigint AS id, r.id AS request_id, r.type, r.code AS reason,
        coalesce(r.error, r.reason) AS detail, r.finished_at AS at, r.topic, r.partition,
        r.kafka_offset, r.key, r.headers, r.payload
 FROM {schema}.requests r WHERE r.state = 'dead') dead

-- name: dead_messages_half
(SELECT 'message' AS kind, d.id, d.request_id COLLATE "C" AS request_id, NULL::text AS type, d.reason,
        d.detail, d.at, d.topic, d.partition, d.kafka_offset, d.key, d.headers, d.payload
 FROM {schema}.dead_letters d WHERE d.retried_at IS NULL) dead

-- name: newest_dead
-- A half stands behind it, of which no more than so many of the latest are looked at.
SELECT * FROM

-- name: dead_within
-- list_dead stands behind it: of its rows those have payload and headers that are so many bytes together.
SELECT kind, id, request_id, type, reason, detail, at, topic, partition, kafka_offset, key,
       CASE WHEN bytes <= %(most_bytes)s THEN headers END AS headers,
       CASE WHEN bytes <= %(most_bytes)s THEN payload END AS payload,
       octet_length(payload) AS payload_bytes, (
           SELECT {header_value h} FROM jsonb_array_elements(
               CASE WHEN jsonb_typeof(headers) = 'array' THEN headers ELSE '[]' END) h
           WHERE type IS NULL AND h->>0 = 'ce_type' AND h->>1 <> '' LIMIT 1) AS ce_type
FROM (SELECT *, sum(coalesce(octet_length(payload), 0) + coalesce(octet_length(headers::text), 0))
          OVER (ORDER BY at DESC, id, request_id ROWS UNBOUNDED PRECEDING) AS bytes FROM

-- name: list_dead_heads
-- As list_dead.
SELECT kind, id, request_id, type, reason, right(detail, 1000) AS detail, at, topic, partition,
       kafka_offset, (
           SELECT {header_value h} FROM jsonb_array_elements(
               CASE WHEN jsonb_typeof(headers) = 'array' THEN headers ELSE '[]' END) h
           WHERE type IS NULL AND h->>0 = 'ce_type' AND h->>1 <> '' LIMIT 1) AS ce_type

-- name: select_dead
-- The conditions are added where it is used.
SELECT kind, coalesce(id::text, request_id) AS name, at FROM {schema}.dead

-- name: dead_of_types
-- A condition on view `dead`. The type of a message is what its header says, and of two headers of one
-- name the first that is not empty, as where it is shown.
CASE WHEN kind = 'request' THEN type LIKE ANY (%(types)s) ELSE (
    SELECT {header_value h} FROM jsonb_array_elements(
        CASE WHEN jsonb_typeof(headers) = 'array' THEN headers ELSE '[]' END) h
    WHERE h->>0 = 'ce_type' AND h->>1 <> '' LIMIT 1
) LIKE ANY (%(types_bytes)s) END

-- name: dead_with
-- A condition on view `dead`: a text somewhere in it.
(position(lower(%(search)s) IN lower(concat_ws(' ', id, request_id, type, reason, detail))) > 0
 OR position(%(search_bytes)s IN payload) > 0
 OR EXISTS (
    SELECT FROM jsonb_array_elements(
        CASE WHEN kind = 'message' AND jsonb_typeof(headers) = 'array' THEN headers ELSE '[]' END) h
    WHERE h->>0 = 'ce_type' AND position(%(search_bytes)s IN {header_value h}) > 0))

-- name: dead_of_name
-- What a name on the command line may mean: a message's number, or a request's id.
SELECT 'message' FROM {schema}.dead_letters WHERE id = %(number)s
UNION ALL
SELECT 'request' FROM {schema}.requests WHERE id = %(name)s AND state = 'dead'

-- name: letters
SELECT 'message' AS kind, id, request_id, reason, detail, topic, partition, kafka_offset,
       produced_at, at, key, headers, payload, retried_at, retried_as
FROM {schema}.dead_letters WHERE id = ANY (%s) ORDER BY id

-- name: lock_letter
SELECT id, request_id, reason, detail, topic, partition, kafka_offset, produced_at, key, headers,
       payload, retried_at, retried_as, statement_timestamp() AS read_at
FROM {schema}.dead_letters WHERE id = %s FOR UPDATE

-- name: letter_to_request
-- Columns as in retry_requests. The run is one more than that of the status that said `malformed`.
WITH made AS (
    INSERT INTO {schema}.requests (id, type, state, code, run, effect, topic, partition,
        kafka_offset, produced_at, key, reference, payload, headers, reason, not_before, due_at)
    VALUES (%(id)s, %(type)s, 'waiting', 'retried', 2, 'transaction', %(topic)s, %(partition)s,
        %(kafka_offset)s, least(%(produced_at)s::timestamptz, statement_timestamp()), %(key)s,
        %(reference)s, %(payload)s, %(headers)s::jsonb, %(why)s,
        coalesce(%(not_before)s::timestamptz, statement_timestamp()),
        greatest(%(not_before)s::timestamptz, statement_timestamp()))
    ON CONFLICT (id) DO NOTHING
    RETURNING *
), noted AS (
    INSERT INTO {schema}.transitions (run, request_id, action, from_state, to_state, who, why)
    SELECT run, id, 'retry', 'dead_letter', state, %(who)s, %(why)s FROM made
)
SELECT id, type, 'dead_letter' AS from_state, state, code, attempt, run, statement_timestamp() AS at,
       fingerprint, own_fingerprint, result::text, error, reason, due_at, status_ttl, headers
FROM made

-- name: mark_letter
UPDATE {schema}.dead_letters SET retried_at = clock_timestamp(), retried_as = %s WHERE id = %s

-- name: drop_letters
DELETE FROM {schema}.dead_letters WHERE id = ANY (%s) AND retried_at IS NULL
RETURNING id, request_id, reason, headers

-- name: dead_requests
SELECT 'request' AS kind, id, type, code, attempt, run, used, crashes, resends, effect,
       fingerprint, own_fingerprint, status_ttl, error, reason, key, reference, coalesce_key,
       asked_by, topic, partition, kafka_offset, produced_at, created_at, finished_at, headers, payload,
       coalesce((SELECT jsonb_agg(to_jsonb(a) - 'request_id' ORDER BY a.run)
                 FROM {schema}.attempts a WHERE a.request_id = r.id), '[]') AS attempts
FROM {schema}.requests r WHERE id = ANY (%s) AND state = 'dead' ORDER BY id

-- name: import_letter
INSERT INTO {schema}.dead_letters (request_id, reason, detail, topic, partition, kafka_offset,
    produced_at, at, key, headers, payload)
VALUES (%(request_id)s, %(reason)s, %(detail)s, %(topic)s, %(partition)s, %(kafka_offset)s,
    %(produced_at)s, %(at)s, %(key)s, %(headers)s::jsonb, %(payload)s)
ON CONFLICT DO NOTHING

-- name: import_request
WITH made AS (
    INSERT INTO {schema}.requests (id, type, state, code, attempt, run, used, crashes, resends,
        effect, fingerprint, own_fingerprint, status_ttl, error, reason, key, reference,
        coalesce_key, asked_by, topic, partition, kafka_offset, produced_at, created_at, finished_at,
        headers, payload)
    VALUES (%(id)s, %(type)s, 'dead', %(code)s, %(attempt)s, %(run)s, %(used)s, %(crashes)s,
        %(resends)s, %(effect)s, %(fingerprint)s, %(own_fingerprint)s, %(status_ttl)s, %(error)s,
        %(reason)s, %(key)s, coalesce(%(reference)s, %(coalesce_key)s), %(coalesce_key)s,
        %(asked_by)s, %(topic)s, %(partition)s, %(kafka_offset)s, %(produced_at)s, %(created_at)s, %(finished_at)s, %(headers)s::jsonb,
        %(payload)s)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), kept AS (
    INSERT INTO {schema}.attempts (request_id, run, code, error, started_at, ended_at, traceback)
    SELECT m.id, a.run, a.code, a.error, a.started_at, a.ended_at, a.traceback
    FROM made m, jsonb_to_recordset(%(attempts)s::jsonb)
        AS a(run int, code text, error text, started_at timestamptz, ended_at timestamptz, traceback text)
    ON CONFLICT (request_id, run) DO NOTHING
)
SELECT id FROM made
