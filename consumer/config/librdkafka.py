"""librdkafka properties that the commit-first protocol owns, and which properties are secret."""

from __future__ import annotations

import re
from collections.abc import Iterable

FORBIDDEN = {
    "bootstrap.servers": "set kafka_bootstrap_servers instead",
    "metadata.broker.list": "set kafka_bootstrap_servers instead",
    "group.id": "set kafka_group instead",
    "group.protocol": "set kafka_protocol instead",
    "partition.assignment.strategy": "set kafka_assignor instead",
    "session.timeout.ms": "set kafka_session_timeout instead (classic protocol only)",
    "max.poll.interval.ms": "set kafka_max_poll_interval instead",
    "auto.offset.reset": "set auto_offset_reset instead",
    "enable.auto.commit": (
        "offsets are committed before requests run, each batch with a token; a commit in the"
        " background would confirm requests that were never handed over"
    ),
    "auto.commit.enable": "offsets are committed by the protocol only, see enable.auto.commit",
    "auto.commit.interval.ms": "there are no automatic commits, see enable.auto.commit",
    "enable.auto.offset.store": "offsets are named in each commit, none is stored on the side",
    "offset.store.method": "offsets live in the group's coordinator, with their tokens",
    "enable.partition.eof": "end-of-partition events would be taken for errors by the loop",
    "enable.rebalance.cb": "the loop has to hear of every assignment and revocation",
    "on_commit": "it is a function of the loop, not a value",
    "rebalance_cb": "it is a function of the loop, not a value",
    "error_cb": "it is a function of the loop, not a value",
    "stats_cb": "it is a function of the loop, not a value",
    "logger": "it is an object of the program, not a value",
}
"""Property -> what to do instead, or why not."""

CLASSIC_ONLY = {
    "heartbeat.interval.ms": (
        "the broker sets the heartbeat of group.protocol=consumer (its"
        ' group.consumer.heartbeat.interval.ms); it needs kafka_protocol = "classic"'
    ),
    "group.protocol.type": (
        'group.protocol=consumer has no protocol type; it needs kafka_protocol = "classic"'
    ),
}
"""Properties refused unless the group is sure to use the classic protocol."""

CONSUMER_ONLY = {
    "group.remote.assignor": (
        "the classic protocol assigns in the members; set kafka_assignor, or use another"
        " kafka_protocol"
    ),
}
"""Properties refused with the classic protocol."""

SECRET = re.compile(
    r"password|secret|passphrase|key\.pem|private\.key|token|credential|jaas|oauthbearer\.config",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a property's value must not be shown."""
    return SECRET.search(name) is not None


def refused(names: Iterable[str], protocol: str) -> dict[str, str]:
    """The properties among `names` that may not be given, each with its reason."""
    table = dict(FORBIDDEN)
    if protocol != "classic":
        table |= CLASSIC_ONLY
    if protocol == "classic":
        table |= CONSUMER_ONLY
    return {name: table[name] for name in names if name in table}
