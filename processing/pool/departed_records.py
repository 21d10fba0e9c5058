"""Records that have left the pool, and partitions whose records are to leave it unstarted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from feedback.contract.record import OFFSET, Record
from processing.ipc.frames import Recall
from processing.pool.actions import Action, Send
from processing.pool.chunk import Chunk
from processing.pool.lanes import Lanes
from processing.pool.worker_state import Worker


class Departures:
    """What the main loop has to know of them."""

    def __init__(self) -> None:
        self.places: Mapping[tuple[str, int], int] = {}
        """(topic, partition) -> from which offset on what has not started is given up."""
        self._told: dict[tuple[str, int], int] = {}
        """The same of all that were ever let go, as of the last time."""
        self.finished: list[Record] = []
        """Done since the loop asked last."""
        self.given_up: list[Record] = []
        """The same of what will not start here."""

    def goes(self, record: Record) -> bool:
        """Whether a record leaves unless it has started."""
        first = self.places.get(record[:2])
        return first is not None and record[OFFSET] >= first

    def told(self, record: Record) -> bool:
        """Whether the next owner of its partition reads a record, unless it ends here."""
        first = self._told.get(record[:2])
        return first is not None and record[OFFSET] >= first

    def done(self, records: Iterable[Record]) -> None:
        """Records are done, or answered for."""
        self.finished += records

    def let_go(
        self, places: Mapping[tuple[str, int], int], workers: Iterable[Worker]
    ) -> list[Action]:
        """From now on these partitions leave, and no others; recalls what workers have of them."""
        self.places = dict(places)
        self._told.update(places)
        if not places:
            return []
        return [Send(w.number, Recall()) for w in workers if self.has_started(w.chunks)]

    def has_started(self, chunks: Iterable[Chunk]) -> bool:
        """Whether there is anything of them in these chunks."""
        return any(self.goes(record) for chunk in chunks for _, record in chunk.remaining())

    def give_up(self, lanes: Lanes) -> list[Record]:
        """Takes out of the lanes what has not started of them, or has come back unstarted."""
        found = lanes.take_out(self.goes) if self.places and len(lanes) else []
        self.given_up += found
        return found

    def take(self) -> tuple[list[Record], list[Record]]:
        """What is finished, and what was given up, since it was asked last."""
        found = self.finished, self.given_up
        self.finished, self.given_up = [], []
        return found
