-- How tables are stored that change all the time, so that they stay small and their statistics true.
-- The defaults wait for a fifth of a table to have changed, which in a journal of many millions of
-- finished rows is never.

ALTER TABLE requests SET (
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0.01
);

-- One row is updated again and again, in columns that no index has: with room on its page it stays
-- there, and no index entry is made.
ALTER TABLE counters SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE coalesced SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- A queue: what is written is deleted a moment later.
ALTER TABLE results SET (
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
    autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0
);
