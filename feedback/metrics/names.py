"""Every metric that Oncepool shows: a closed list. Nothing else is ever shown at a /metrics.

A name that stands here once is a promise: dashboards and rules use it. docs/metrics.md is written
from this list, and deploy/ is checked against it. Times are in seconds. No label has values without
a bound: what lies beyond it is `other`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from feedback.metrics.durations import BOUNDS

PREFIX: Final = "oncepool_"
OTHER: Final = "other"
"""The label's value of what lies beyond its bound."""
COUNTED: Final = 100_000
"""Rows of a table that are counted at most, so that a look costs the same however many there are:
a figure of so many says so many or more."""
CHUNK_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
HTTP_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class MetricKind(StrEnum):
    """What Prometheus knows it as."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class ShownBy(StrEnum):
    """Whose /metrics has it."""

    RUN = "oncepool run"
    RELAY = "oncepool relay"
    GATEWAY = "oncepool gateway"


class Metric(NamedTuple):
    """One name of the list."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    shown_by: ShownBy = ShownBy.RUN
    bounds: tuple[float, ...] = ()
    """Of a histogram: upper bounds of its buckets, without the last one, which has none."""

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that stand in a scrape."""
        if self.kind is MetricKind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.name,)


def _counter(name: str, text: str, *labels: str, by: ShownBy = ShownBy.RUN) -> Metric:
    return Metric(f"{PREFIX}{name}_total", MetricKind.COUNTER, text, labels, by)


def _gauge(name: str, text: str, *labels: str, by: ShownBy = ShownBy.RUN) -> Metric:
    return Metric(f"{PREFIX}{name}", MetricKind.GAUGE, text, labels, by)


def _histogram(
    name: str, bounds: tuple[float, ...], text: str, *labels: str, by: ShownBy = ShownBy.RUN
) -> Metric:
    return Metric(f"{PREFIX}{name}", MetricKind.HISTOGRAM, text, labels, by, bounds)


# Who it is

INFO: Final = _gauge(
    "info", "Always 1; says which instance and version this is.", "instance_id", "version"
)

# Requests. `type` is one of the app's; `code` one of docs/states.md or a handler's own

REQUESTS: Final = _counter(
    "requests",
    "Runs that came to an end here, and ends without a run, by the state that followed.",
    "type", "state", "code",
)  # fmt: skip
DUPLICATES_ANSWERED: Final = _counter(
    "duplicates_answered",
    "Messages whose id the journal had already: sent again, and answered with this state.",
    "type", "state",
)  # fmt: skip
READ_AGAIN_ANSWERED: Final = _counter(
    "read_again_answered",
    "Messages that were read again after a kill or a rebalance and had been run before.",
    "type",
)
DEAD_LETTERS: Final = _counter(
    "dead_letters",
    "Messages stored as dead letters: `malformed`, or `conflict` where the id has another payload.",
    "type", "reason",
)  # fmt: skip
SKIPPED: Final = _counter("skipped", "Messages that the decoder of their topic has left out.")
LOST_AT_COMMIT: Final = _counter(
    "lost_at_commit",
    "Messages given up when the commit of their offset failed. 0 unless read_again is off.",
    "type",
)
RUN_SECONDS: Final = _histogram(
    "run_seconds", BOUNDS,
    "What handlers and their deferred triggers took, for each run that its worker lived to tell of,"
    " whatever came of it. Those that end with their worker (a timeout, a crash, the end of the"
    " grace) are in `oncepool_requests_total` and `oncepool_worker_deaths_total` alone.",
    "type",
)  # fmt: skip
WAIT_SECONDS: Final = _histogram(
    "wait_seconds", BOUNDS,
    "From the producer's time of a message to the start of its handler. Not of what comes from the"
    " waiting queue, nor of runs that end with their worker.",
    "type",
)  # fmt: skip
DONE_SECONDS: Final = _histogram(
    "done_seconds", BOUNDS,
    "From the producer's time to done: all waits, delays and attempts included.",
    "type",
)  # fmt: skip

# Workers

WORKERS: Final = _gauge(
    "workers", "Worker processes: starting, idle, busy, suspended (its connection broke), leaving.",
    "state",
)  # fmt: skip
WORKERS_WANTED: Final = _gauge("workers_wanted", "Worker processes that there should be.")
WORKER_DEATHS: Final = _counter(
    "worker_deaths",
    "Workers that ended and were not told to: `start` (not ready yet), `timeout`, `shutdown`,"
    " `cancelled`, `exit`, or the name of a signal.",
    "cause",
)
CHUNK_REQUESTS: Final = _histogram(
    "chunk_requests", CHUNK_BOUNDS, "Requests that a worker has run together, for each chunk."
)
STATUS_WRITES_DROPPED: Final = _counter(
    "status_writes_dropped",
    "Statuses that never reached Redis: the journal answers, once the request is sent again.",
    "process",
)

# Intake

POLLED: Final = _counter("messages_polled", "Messages taken from Kafka.")
CONFIRMED: Final = _counter("messages_confirmed", "Messages whose commit is confirmed: they run.")
DROPPED: Final = _counter(
    "messages_dropped",
    "Messages that were taken and not run here. Their next owner runs them, but for what"
    " oncepool_lost_at_commit_total counts.",
    "cause",
)
READ_AGAIN: Final = _counter(
    "messages_read_again",
    "Messages read from below the committed offset, as nobody had finished them: after a kill or a"
    " rebalance.",
)
COMMITS: Final = _counter("commits", "Commits of offsets.")
COMMITS_SENT_AGAIN: Final = _counter("commits_sent_again", "Commits that had to be sent again.")
COMMIT_ERRORS: Final = _counter(
    "commit_errors", "Commits that were answered with an error, by librdkafka's name of it.", "code"
)
REJOINS: Final = _counter(
    "rejoins",
    "Times that the group was joined anew: it was left, as a commit's bytes may be late, or it had"
    " given the member up.",
)
REBALANCES: Final = _counter(
    "rebalances",
    "Times that partitions were assigned, revoked, or lost (the group had put this member out).",
    "event",
)
PAUSES: Final = _counter("intake_pauses", "Times that all partitions were paused.")
INTAKE_CLOSED: Final = _gauge(
    "intake_closed",
    "1 while nothing is taken: `full` (enough in hand), `database` (it is away), `workers` (none"
    " can start), `draining`.",
    "reason",
)
JOINED: Final = _gauge(
    "group_joined",
    "1 while the group counts this instance as a member, as far as it has heard: with the consumer"
    " protocol it stays 1 while brokers are away.",
)
BROKERS_UP: Final = _gauge(
    "brokers_up",
    "0 from when Kafka's client reports that all brokers are down until it hears from one, else 1."
    " Absent as long as it has not asked any.",
)
PARTITIONS: Final = _gauge("partitions_assigned", "Partitions that this instance has, and reads.")
WITHOUT_START: Final = _gauge(
    "partitions_without_start",
    "Partitions that this instance has and does not read yet: they have no leader, or their"
    " committed offset could not be read. Their requests wait; the others go on.",
)
LAG: Final = _gauge(
    "consumer_lag",
    "Messages of this instance's partitions that are not taken yet. Stands still while they are"
    " paused: the client hears of new ones only with those that it fetches. Absent while brokers"
    " are away.",
    "topic",
)
BACKLOG: Final = _gauge(
    "local_requests",
    "Requests in this instance: `held` (wait for their commit), `queued` (wait for a worker),"
    " `running` (in a worker's chunks).",
    "stage",
)

# The services, as the maintenance process finds them

DATABASE_UP: Final = _gauge("database_up", "1 while PostgreSQL answers and takes writes.")
REDIS_UP: Final = _gauge("redis_up", "1 while Redis answers.")
READY: Final = _gauge("ready", "1 while /readyz says yes.")
HEARTBEAT_AGE: Final = _gauge(
    "heartbeat_age_seconds", "Since the main process was heard: what it says of itself is so old."
)

# The journal: the same from each instance, so take the largest, never the sum

JOURNAL_ROWS: Final = _gauge(
    "journal_rows",
    f"Rows of the journal, at most {COUNTED}: `waiting`, `due` (wait though they could run),"
    " `in_doubt`, `dead`, and `dead_letter` (messages). The same from each instance.",
    "what",
)
JOURNAL_OLDEST: Final = _gauge(
    "journal_oldest_seconds",
    "For how long the oldest of those rows is due, in doubt, dead or stored. 0 where there is none."
    " The same from each instance.",
    "what",
)
JOURNAL_AGE: Final = _gauge(
    "journal_read_age_seconds",
    "Since the journal was looked at; not there before the first time.",
)

# The relay. `sender` is one of its settings

OUTBOX_ROWS: Final = _gauge(
    "outbox_rows",
    f"Rows of the outbox, at most {COUNTED}: `unsent`, `sent` (wait for their answer), `dead`. The"
    " same from each relay.",
    "sender", "state", by=ShownBy.RELAY,
)  # fmt: skip
OUTBOX_OLDEST: Final = _gauge(
    "outbox_oldest_seconds",
    "Age of the oldest of those rows: since it was added, or sent. 0 where there is none. The same"
    " from each relay.",
    "sender", "state", by=ShownBy.RELAY,
)  # fmt: skip
OUTBOX_AGE: Final = _gauge(
    "outbox_read_age_seconds",
    "Since the outbox was looked at; not there before the first time.",
    by=ShownBy.RELAY,
)
RELAY_SENT: Final = _counter(
    "relay_sent", "Rows that brokers have confirmed, each send of a row.", "sender",
    by=ShownBy.RELAY,
)  # fmt: skip
RELAY_RESENT: Final = _counter(
    "relay_resent", "Rows put back to be sent once more, as no answer came.", "sender",
    by=ShownBy.RELAY,
)  # fmt: skip
RELAY_ENDED: Final = _counter(
    "relay_ended", "Rows whose end was read and written.", "sender", by=ShownBy.RELAY
)
RELAY_UP: Final = _gauge(
    "relay_up", "1 while the service answers: `outbox` (takes marks and ends, too), `brokers`,"
    " `statuses`, `results`.",
    "sender", "service", by=ShownBy.RELAY,
)  # fmt: skip

# The gateway. `route` is as in its OpenAPI document

GATEWAY_REQUESTS: Final = _counter(
    "gateway_requests",
    "Calls answered, refusals of a full gateway among them (`none`, 503).",
    "route", "method", "status", by=ShownBy.GATEWAY,
)  # fmt: skip
GATEWAY_SECONDS: Final = _histogram(
    "gateway_request_seconds", HTTP_BOUNDS, "What answers took, long polls included.", "route",
    by=ShownBy.GATEWAY,
)  # fmt: skip

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric for metric in list(globals().values()) if isinstance(metric, Metric)
}
"""By name, in the order in which they stand here."""
