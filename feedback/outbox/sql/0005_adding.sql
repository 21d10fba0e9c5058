-- Writes requests, all or none, in one statement: so it is on a connection in autocommit mode, too, where
-- relays read what each statement has written. NULL, or the first id that is another request's here; then
-- nothing is written. Each statement in it sees what it has waited for: another transaction that added an
-- id, or one in which a row has ended meanwhile. Plans are made at each call: what was planned while the
-- tables were empty reads all of them later.
CREATE FUNCTION :schema.add_requests(given json) RETURNS text LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    mine  text[] := '{}';
    taken text;
    gone  boolean;
BEGIN
    FOR turn IN 1 .. 3 LOOP
        WITH written AS (
            INSERT INTO :schema.requests (id, type, sender, key, payload, headers, reference,
                not_before, fingerprint, shard, created_at)
            SELECT id, type, sender, decode(key, 'base64'), decode(payload, 'base64'), headers,
                reference, not_before, decode(fingerprint, 'hex'), shard, created_at
            FROM json_to_recordset(given) AS wanted (n int, id text, type text, sender text,
                key text, payload text, headers jsonb, reference text, not_before timestamptz,
                fingerprint text, shard smallint, created_at timestamptz)
            WHERE NOT EXISTS (SELECT FROM :schema.finished f WHERE f.id = wanted.id)
            ORDER BY n
            ON CONFLICT (id) DO NOTHING
            RETURNING id
        )
        SELECT mine || coalesce(array_agg(id), '{}') INTO mine FROM written;
        IF cardinality(mine) = json_array_length(given)
            AND NOT EXISTS (SELECT FROM :schema.finished f WHERE f.id = ANY(mine))
        THEN
            RETURN NULL;
        END IF;

        SELECT (array_agg(wanted.id ORDER BY n) FILTER (
                WHERE decode(wanted.fingerprint, 'hex') <> r.fingerprint
                    OR decode(wanted.fingerprint, 'hex') <> f.fingerprint))[1],
            bool_or(r.id IS NULL AND f.id IS NULL)
        INTO taken, gone
        FROM json_to_recordset(given) AS wanted (n int, id text, fingerprint text)
        LEFT JOIN :schema.requests r ON r.id = wanted.id
        LEFT JOIN :schema.finished f ON f.id = wanted.id;
        -- Nobody else has seen these: what has ended needs no row of this call.
        DELETE FROM :schema.requests r WHERE r.id = ANY(mine)
            AND (taken IS NOT NULL OR EXISTS (SELECT FROM :schema.finished f WHERE f.id = r.id));
        IF taken IS NOT NULL OR NOT gone THEN
            RETURN taken;
        END IF;
        -- What is neither here nor there has just gone: it is tried again.
    END LOOP;
    RAISE EXCEPTION 'the outbox did not take all of it: add it again'
        USING ERRCODE = 'serialization_failure';
END
$$;
