-- Requests that wait for another instance, for feedback/journal/parking.py.
-- {schema} is the quoted name of the journal's schema.

-- name: park
INSERT INTO {schema}.requests (
    id, type, state, code, effect, topic, partition, kafka_offset, produced_at, not_before, due_at,
    run, crashes, lost_claims, key, reference, payload, headers
)
SELECT id, type, 'waiting', %(code)s, 'transaction', topic, partition, kafka_offset,
       least(produced_at, statement_timestamp()),
       not_before, greatest(not_before, statement_timestamp()), run, crashes, begun::int, key,
       reference, payload, headers::jsonb
FROM unnest(
    %(ids)s::text[], %(types)s::text[], %(topics)s::text[], %(partitions)s::int[],
    %(offsets)s::bigint[], %(produced)s::timestamptz[], %(not_before)s::timestamptz[],
    %(runs)s::int[], %(crashes)s::int[], %(keys)b::bytea[], %(references)s::text[],
    %(payloads)b::bytea[], %(headers)s::text[], %(begun)s::bool[]
) AS u(id, type, topic, partition, kafka_offset, produced_at, not_before, run, crashes, key,
       reference, payload, headers, begun)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id, run

-- name: lock_failed
-- Result columns as in feedback.journal.parking._FailedRow.
SELECT id, type, fingerprint, own_fingerprint, payload, headers::text, topic, partition, kafka_offset
FROM {schema}.requests
WHERE id = ANY (%(ids)s) AND state = 'failed' AND payload IS NOT NULL ORDER BY id FOR UPDATE

-- name: revive
-- Failed requests that were sent again, after lock_failed: they wait with what their rows say. How
-- long it is wanted and who asks is the resend's. One that has a reference is a claim until those of
-- its reference are settled; the index allows no second one.
UPDATE {schema}.requests r
SET state = 'waiting', code = %(code)s, attempt = 1, used = 0, run = r.run + u.run + 1,
    crashes = r.crashes + u.crashes, lost_claims = u.begun::int, error = NULL, reason = NULL, finished_at = NULL,
    token = CASE WHEN r.coalesce_key IS NOT NULL THEN %(token)s END, lease_until = NULL,
    window_start = CASE WHEN r.coalesce_key IS NOT NULL THEN statement_timestamp() END,
    not_before = greatest(u.not_before, statement_timestamp()),
    due_at = greatest(u.not_before, statement_timestamp()),
    topic = u.topic, partition = u.partition, kafka_offset = u.kafka_offset,
    headers = (
        SELECT coalesce(jsonb_agg(h), '[]') FROM (
            SELECT h FROM jsonb_array_elements(r.headers) h
            WHERE h ->> 0 NOT IN ('ce_expirytime', 'ce_replyto', 'ce_notbefore')
            UNION ALL
            SELECT h FROM jsonb_array_elements(u.headers::jsonb) h
            WHERE h ->> 0 IN ('ce_expirytime', 'ce_replyto', 'ce_notbefore')
        ) merged
    )
FROM unnest(
    %(ids)s::text[], %(types)s::text[], %(topics)s::text[], %(partitions)s::int[],
    %(offsets)s::bigint[], %(not_before)s::timestamptz[], %(runs)s::int[], %(crashes)s::int[],
    %(headers)s::text[], %(begun)s::bool[]
) AS u(id, type, topic, partition, kafka_offset, not_before, run, crashes, headers, begun)
WHERE r.ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.requests WHERE id = ANY (%(ids)s)
)) AND r.id = u.id AND r.type = u.type AND r.state = 'failed'
RETURNING r.id, r.run, r.coalesce_key IS NOT NULL
