"""What waits in the pool and can't just share the next chunk, by partition. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from feedback.contract.record import PARTITION, TOPIC, TYPE, Record
from processing.pool.worker_time import Costs

_ORIGIN: Final = itemgetter(TOPIC, PARTITION, TYPE)
_PLACE: Final = itemgetter(TOPIC, PARTITION)


class Backlog(NamedTuple):
    """What waits of one partition."""

    requests: int
    seconds: float
    """What they are expected to take, one after the other."""
    kind: str
    """The kind that most of that time is for."""
    standing: int = 0
    """How many of them are kept back: nobody knows for how long."""


def backlogs_of(
    records: Iterable[Record], costs: Costs, standing: Iterable[Record] = ()
) -> dict[tuple[str, int], Backlog]:
    """(topic, partition) -> what waits of it; `standing` are some of the records."""
    stand = Counter(map(_PLACE, standing))
    found: dict[tuple[str, int], tuple[int, float, float, str]] = {}
    for (topic, partition, kind), n in Counter(map(_ORIGIN, records)).items():
        name = kind or f"topic:{topic}"
        took = n * costs.expected(name)
        requests, seconds, longest, longest_name = found.get((topic, partition), (0, 0.0, 0.0, ""))
        if took > longest:
            longest, longest_name = took, name
        found[topic, partition] = (requests + n, seconds + took, longest, longest_name)
    return {
        place: Backlog(n, seconds, name, stand[place])
        for place, (n, seconds, _, name) in found.items()
    }
