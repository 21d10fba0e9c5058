"""librdkafka properties that the commit-first protocol owns, and which are secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from consumer.config.property_twins import TWINS

FORBIDDEN = {
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
    "log.queue": "lines of the client are read where it is polled, in the loop's thread",
    "log.thread.name": (
        "by the thread in its line a broken connection to the coordinator is told from others"
    ),
}
"""Property -> why it can't be given."""

OF_SETTINGS = {name: f"set {twin.setting} instead" for name, twin in TWINS.items()}
"""Properties that whoever reads the settings has taken for those."""

OF_CONSUMERS = {
    name: (
        "set its bootstrap_servers instead"
        if twin.setting == "kafka_bootstrap_servers"
        else "it is for consumers, and a sender is none"
    )
    for name, twin in TWINS.items()
}
"""Properties that a sender of an outbox can't have."""

CLASSIC_ONLY = {
    "heartbeat.interval.ms": (
        "the broker sets the heartbeat of group.protocol=consumer (its"
        " group.consumer.heartbeat.interval.ms)"
    ),
    "group.protocol.type": ("group.protocol=consumer has no protocol type"),
}
"""Properties of the classic protocol alone: refused where the group is sure not to use it, left out
where it turns out not to."""

CONSUMER_ONLY = {
    "group.remote.assignor": ("the classic protocol assigns in the members; set kafka_assignor"),
}
"""The same for KIP-848's."""

SECRET = re.compile(
    r"password|secret|passphrase|key\.pem|private\.key|token|credential|jaas|oauthbearer\.config",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a property's value must not be shown."""
    return SECRET.search(name) is not None


def refused(
    names: Iterable[str], protocol: str, further: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The properties among `names` that may not be given, each with its reason."""
    table = {**FORBIDDEN, **_of_others(protocol), **further}
    return {name: table[name] for name in names if name in table}


def without_others(properties: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Those that the group protocol which is used has a meaning for."""
    others = _of_others(protocol)
    return {name: value for name, value in properties.items() if name not in others}


def _of_others(protocol: str) -> dict[str, str]:
    tables = {"classic": CONSUMER_ONLY, "consumer": CLASSIC_ONLY}
    return {
        name: f'{reason}; kafka_protocol is "{protocol}"'
        for name, reason in tables.get(protocol, {}).items()
    }
