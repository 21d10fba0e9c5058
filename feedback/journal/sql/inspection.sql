-- What pages for operators show of the journal beside its rows: feedback/operations/inspection.py.
-- {schema} is the quoted name of the journal's schema. Each is bounded in time where it is used.
-- `types`: patterns for LIKE, of which a type has to fit one; NULL: all. They stand before each LIMIT, or
-- whoever sees some types only would get pages from which the others are missing.
-- What has not ended is found by its state, which has indexes of its own: of `finished_at IS NULL` the
-- index knows only in which ranges of pages there ever was one, which in time are nearly all.

-- name: ended_over_time
SELECT floor(extract(epoch FROM minute) / %(step)s)::bigint * %(step)s AS at, type,
       sum(n) FILTER (WHERE state = 'done')::bigint AS done,
       sum(n) FILTER (WHERE state <> 'done')::bigint AS other
FROM {schema}.counters
WHERE minute >= date_trunc('minute', %(since)s::timestamptz) AND state = ANY (%(ended)s) AND code NOT IN ('duplicate', 'read_again')
GROUP BY at, type ORDER BY at, type

-- name: times_over_time
-- Of what ran when it came and at its first start. Its row is made when the transaction of its chunk
-- begins; so the wait ends with that, and the run begins with it.
SELECT at, type, count(*)::bigint AS n,
       percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY wait) AS wait,
       percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run) AS run
FROM (
    SELECT floor(extract(epoch FROM {nearest finished_at}) / %(step)s)::bigint * %(step)s AS at, type,
           greatest(0, extract(epoch FROM {nearest created_at} - {nearest produced_at}))::float8 AS wait,
           greatest(0, extract(epoch FROM {nearest finished_at} - {nearest created_at}))::float8 AS run
    FROM {schema}.requests
    WHERE finished_at >= %(since)s AND state = ANY (%(states)s) AND requests.run = 1
      AND not_before IS NULL
) ends
GROUP BY at, type ORDER BY at, type

-- name: not_run_counts
-- What was committed and never run here, and what was read again and had run before.
SELECT type, state, code, sum(n)::bigint AS n, max(minute) AS last
FROM {schema}.counters
WHERE minute >= %(since)s AND (state = 'lost' OR code IN ('read_again', 'parked'))
  AND (%(types)s::text[] IS NULL OR type LIKE ANY (%(types)s))
GROUP BY type, state, code ORDER BY type, state, code

-- name: most_resent
SELECT id, type, state, code, resends, resent_from, created_at, finished_at
FROM {schema}.requests
WHERE resends > 0 AND (finished_at >= %(since)s OR (state = 'waiting' AND created_at >= %(since)s)
       OR (state = 'running' AND created_at >= %(since)s))
  AND (%(types)s::text[] IS NULL OR type LIKE ANY (%(types)s))
ORDER BY resends DESC, created_at DESC, id LIMIT %(limit)s

-- name: coalesced_groups
SELECT superseded_by, type, min(reference) AS reference, count(*)::bigint AS n,
       min(created_at) AS first, max(created_at) AS last,
       (array_agg(id ORDER BY created_at DESC))[1:20] AS ids
FROM {schema}.requests
WHERE state = 'superseded' AND finished_at >= %(since)s AND superseded_by IS NOT NULL
  AND (%(types)s::text[] IS NULL OR type LIKE ANY (%(types)s))
GROUP BY superseded_by, type ORDER BY n DESC, last DESC, superseded_by LIMIT %(limit)s

-- name: superseded_by_one
SELECT id, created_at, finished_at FROM {schema}.requests
WHERE state = 'superseded' AND superseded_by = %(id)s AND finished_at >= %(since)s
  AND finished_at < %(until)s
ORDER BY created_at DESC, id LIMIT %(limit)s

-- name: conflicts
SELECT d.id AS number, d.request_id, d.detail, d.at, d.topic, d.partition, d.kafka_offset,
       d.headers AS other_headers, d.produced_at AS other_produced_at,
       CASE WHEN octet_length(d.payload) <= %(longest)s THEN d.payload END AS other_payload,
       octet_length(d.payload) AS other_payload_bytes,
       CASE WHEN octet_length(r.payload) <= %(longest)s THEN r.payload END AS payload,
       octet_length(r.payload) AS payload_bytes,
       r.type, r.state, r.code, r.created_at, r.fingerprint,
       r.topic AS stored_topic, r.partition AS stored_partition, r.kafka_offset AS stored_offset
FROM (SELECT * FROM {schema}.dead_letters WHERE retried_at IS NULL ORDER BY at DESC, id DESC LIMIT %(newest)s) d
LEFT JOIN {schema}.requests r ON r.id = d.request_id
WHERE d.reason = 'conflict'
  AND (%(types)s::text[] IS NULL OR r.type LIKE ANY (%(types)s))
ORDER BY d.at DESC, d.id DESC LIMIT %(limit)s

-- name: requests_at_offsets
-- Of all places in one reading: none of them has an index.
SELECT * FROM (
    SELECT r.id, r.type, r.state, r.code, r.topic, r.partition, r.kafka_offset, r.created_at, r.finished_at,
           row_number() OVER (PARTITION BY r.topic, r.partition ORDER BY r.kafka_offset) AS n
    FROM {schema}.requests r
    JOIN unnest(%(topics)s::text[], %(partitions)s::int[], %(firsts)s::bigint[], %(ends)s::bigint[])
        AS place(topic, partition, first, past)
      ON r.topic = place.topic AND r.partition = place.partition
         AND r.kafka_offset >= place.first AND r.kafka_offset < place.past
    WHERE (r.finished_at >= %(since)s OR (r.state = 'waiting' AND r.created_at >= %(since)s)
           OR (r.state = 'running' AND r.created_at >= %(since)s))
      AND (%(types)s::text[] IS NULL OR r.type LIKE ANY (%(types)s))
) found
WHERE n <= %(limit)s ORDER BY topic, partition, kafka_offset
