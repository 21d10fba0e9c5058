"""Which step of a request's way a function belongs to, in the main process and in a worker. Pure.

By the function, where one file has several steps, else by the file's name: of today's files and of
those of ec01882, whose folders are flat. What no rule knows is `other`, and shows as that.
"""

from __future__ import annotations

from collections.abc import Callable

OTHER = "other"
MESSAGES = "messages from librdkafka, made records"
SIZES = "sizes of records"
TAKEN = "order of offsets, what is owned, buffer"
COMMITS = "commits, marks, what is unfinished"
CHUNKS = "lanes, chunks filled"
FRAMES = "frames between main and worker"
ENDS = "reports, what is in hand"
TURNS = "turns of the loop, selectors, housekeeping"
READ = "records read: envelope, payload, fingerprint"
DEDUP = "what is fresh, in which order"
CALLED = "handlers called, segments"
STATEMENTS = "BEGIN, look-up, COPY, COMMIT, sent and waited for"
ROWS = "rows of the journal made"
STATUSES = "statuses made, put into the sender's queue"
TOLD = "counts, report"

_MAIN: dict[str, str] = {
    "Kafka.commit": COMMITS, "Kafka.member": COMMITS, "Kafka._on_commit": COMMITS,
    "send_offsets": COMMITS, "is_member": COMMITS, "Pool.report": ENDS, "Pool._forget": ENDS,
    "Kafka.pause": TURNS, "Buffer.add": TAKEN, "Buffer.add.<locals>.<listcomp>": SIZES,
    "Pool.submit": ENDS, "kind_of": CHUNKS, "Worker.take_first": ENDS, "Chunk.take_done": ENDS,
}  # fmt: skip
_MAIN_FILES: dict[str, str] = {
    **dict.fromkeys(("kafka", "kafka_records", "records", "client_calls", "group_client",
                     "events", "broker_probe"), MESSAGES),
    **dict.fromkeys(("record",), SIZES),
    **dict.fromkeys(("assignment", "buffer", "flow", "flow_control"), TAKEN),
    **dict.fromkeys(("commit", "open_commit", "settlement", "marks", "unfinished", "repair",
                     "offset_metadata", "offset_repair", "commit_errors", "actions", "joining",
                     "unknown_starts", "departed_records"), COMMITS),
    **dict.fromkeys(("chunk", "lanes", "lane_order", "queues", "dispatch", "costs", "worker_time",
                     "limits", "limited", "kept_back", "kept_places", "backlog", "worker_state",
                     "calls"), CHUNKS),
    **dict.fromkeys(("channel", "frames", "child", "progress", "slot"), FRAMES),
    **dict.fromkeys(("pool", "report_totals", "counters", "demand", "wants", "waiting_queue",
                     "doubts", "trying_again", "standstill", "counts", "workers", "seats",
                     "worker_deaths", "running"), ENDS),
    **dict.fromkeys(("loop", "service", "supervisor", "worker_processes", "maintenance_link",
                     "turns", "waits", "stats", "watchdog", "signal_pipe", "signals",
                     "wakeup", "logs", "pool_log", "pool_stats", "hearing", "topic_watch",
                     "shutdown", "facts", "restart_backoff", "respawn", "deadlines", "letting_go",
                     "leases", "handover", "broker_contact", "unstarted_parts",
                     "client_lag", "kafka_log", "client_log"), TURNS),
}  # fmt: skip
_WORKER: dict[str, str] = {
    "plain_rows": ROWS, "_row": ROWS, "plain_statuses": STATUSES, "_status": STATUSES,
    "is_plain": DEDUP, "Transaction._tell": STATUSES, "Executor._read": READ,
    "ChunkRun.read": READ, "ChunkRun.start": CALLED, "ChunkRun.start_batch": CALLED,
    "ChunkRun.settle": TOLD, "ChunkRun.settle_done": TOLD, "ChunkRun.finish": TOLD,
    "JournalWriter.find": STATEMENTS, "JournalWriter.insert_done": STATEMENTS,
    "Task.end": CALLED, "microseconds": ROWS, "share_out": CALLED, "Round._tell": STATUSES,
}  # fmt: skip
_WORKER_FILES: dict[str, str] = {
    **dict.fromkeys(("reading", "envelope", "headers", "payloads", "payload", "fingerprint",
                     "cloudevents", "structured", "decoder", "codec", "task", "record", "times",
                     "ids", "schedule"), READ),
    **dict.fromkeys(("dedup", "triage", "groups", "transaction", "transactions", "round",
                     "bisection", "executor", "execution", "chunk_run", "chunk", "coalescing",
                     "moves", "state_machine", "states"), DEDUP),
    **dict.fromkeys(("calls", "call_ends", "effect_transaction", "effect_none", "segments",
                     "segment_sizes", "handler", "binding", "injection", "request", "outcomes",
                     "gate", "progress", "slot", "guarded_cursor", "guard", "repeating_cursor",
                     "failures", "stopping", "awaiting", "results"), CALLED),
    **dict.fromkeys(("session", "writer", "queries", "connections", "commits", "database_clock",
                     "prepared_statements", "gathering_pipeline", "statements", "outages",
                     "row_settings", "transaction_ends", "postgres_times",
                     "open_rows", "postgres", "backoff"), STATEMENTS),
    **dict.fromkeys(("done_rows", "rows", "plain", "records", "ending", "conclusion",
                     "result_outbox", "retry_decision"), ROWS),
    **dict.fromkeys(("status", "store", "sender", "redis_store", "redis_commands", "hints"),
                    STATUSES),
    **dict.fromkeys(("chunk_tally", "chunk_durations", "counters", "counts", "durations",
                     "failure_report"), TOLD),
    **dict.fromkeys(("channel", "frames", "inbox", "worker", "__main__", "child"), FRAMES),
}  # fmt: skip
_TABLES = {"main": (_MAIN, _MAIN_FILES), "worker": (_WORKER, _WORKER_FILES)}


def steps_of_process(process: str) -> Callable[[str], str]:
    """(path:function) -> step, of one of the two processes."""
    functions, files = _TABLES[process]

    def step(place: str) -> str:
        path, _, function = place.partition(":")
        name = path.rpartition("/")[2].removesuffix(".py")
        return functions.get(function) or files.get(name, OTHER)

    return step
