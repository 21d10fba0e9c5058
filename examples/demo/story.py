"""The course of events: who is killed when, and when it is over.

One thread does all of it, in turns: send, read statuses and logs, go on with the story where what
it waits for has come, show it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

from examples.demo import facts
from examples.demo.book import Book, Gap
from examples.demo.circle import Circle
from examples.demo.group import GroupOffsets
from examples.demo.instances import Instance
from examples.demo.ledger import Ledger, balance
from examples.demo.operator import Operator
from examples.demo.order_ledger import OrderLedger
from examples.demo.place import PARTITIONS, DemoPlace
from examples.demo.plan import make_plan
from examples.demo.producer import DemoProducer
from examples.demo.program import DemoFailed
from examples.demo.screen import Screen, View

START = 60.0
DRAIN = 60.0
QUEUE_DRAIN = 150.0
"""Seconds for what waits: claims of a killed consumer are free again when their lease ends."""
TURN = 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """How big the play is."""

    requests: int
    window: int
    """Requests without an answer, at most: more than the consumers have in hand together, so that
    a kill meets work."""
    limit: float
    """Seconds until it is over whatever is missing: the ledger says what."""
    patience: float = 8.0
    """Seconds without an answer until a request is sent again: longer than a session, so that
    somebody is there to answer."""
    direct: float = 0.0
    """Share of the requests before the first one for the waiting queue, which is sent after the
    kill; 0: such ones are sent from the beginning."""
    consumers: int = 3
    workers: int = 2
    max_in_hand: int = 400
    outbox: bool = True
    """Whether the storefront's requests go through one. Where they don't, that is all there is to
    see: nothing but the storefront is killed."""


# In the quick one nothing waits yet when the consumer is killed: what it has claimed by then is
# free again after a minute.
QUICK = Size(requests=2_400, window=1_200, limit=120.0, direct=0.8)
FULL = Size(requests=20_000, window=1_500, limit=600.0)
NO_OUTBOX = Size(requests=0, window=1, limit=120.0, consumers=1, outbox=False)


class Wait(NamedTuple):
    """What the story waits for before it goes on."""

    what: str
    come: Callable[[], bool]


class Story:
    """One play. For `with`: nothing that it started outlives it."""

    def __init__(self, place: DemoPlace, size: Size, screen: Screen) -> None:
        self.faults: list[str] = []
        self._place, self._size, self._screen = place, size, screen
        self._consumers: list[Instance] = []
        self._gaps: list[Gap] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        place, size = self._place, self._size
        with ExitStack() as opened:
            self._group = opened.enter_context(GroupOffsets(place.kafka, place.name, PARTITIONS))
            self._producer = DemoProducer(
                make_plan(place.name, size.requests, direct=size.direct),
                place.kafka, place.redis, place.name,
                window=size.window, patience=size.patience,
            )  # fmt: skip
            self._producer.queue_open = not size.direct
            opened.callback(self._producer.close)
            self._operator = Operator(place)
            self._circle = opened.enter_context(
                Circle(place, self._screen.event, outbox=size.outbox)
            )
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def play(self) -> tuple[Ledger, OrderLedger]:
        """Plays it to its end, and does the books. Raises DemoFailed."""
        numbers = range(1, self._size.consumers + 1)
        consumers = [self._start(f"consumer {number}") for number in numbers]
        # Before anything is sent: then each partition has one owner until one of them leaves.
        self._until(lambda: all(c.joined for c in consumers), "the consumers to join", START)
        self._circle.start()
        script = self._script(*consumers) if self._size.outbox else self._short_script()
        wait = next(script, None)
        end = time.monotonic() + self._size.limit
        while wait is not None or not (self._producer.over and self._circle.over):
            if time.monotonic() > end:
                self._screen.event(f"not over after {self._size.limit:g} s: the books as it is")
                break
            self._turn("the last answers" if wait is None else wait.what)
            if wait is not None and wait.come():
                wait = next(script, None)
        self._circle.stop()
        self._finish()
        return balance(self._book()), self._circle.books()

    # The script

    def _script(self, first: Instance, second: Instance, third: Instance) -> Iterator[Wait]:
        yield Wait("a fifth of the answers", lambda: self._answered(0.2))
        pid = first.kill_worker()
        self._fault(f"a worker of {first.name} was killed with SIGKILL (pid {pid})")
        yield Wait("two fifths of the answers", lambda: self._answered(0.4))
        third.kill()
        # What it had committed and not finished is lost, at most what it may have in hand.
        committed = self._group.committed_by(third.id)
        self._gaps.append(Gap("killed", self._size.max_in_hand, committed))
        self._fault(
            f"{third.name} was killed with SIGKILL (pid {third.pid}); its commits stood last in "
            f"{len(committed)} of {PARTITIONS} partitions"
        )
        self._producer.queue_open = True
        fourth = self._start("consumer 4")
        yield Wait("the shop to be busy", lambda: self._circle.sells)
        self._fault(self._circle.kill_relay())
        yield Wait("the shop to be busy again", lambda: self._circle.sells)
        self._fault(self._circle.kill_storefront())
        yield Wait("three fifths of the answers", lambda: self._answered(0.6))
        self._gaps.append(Gap("stopped", self._size.max_in_hand))
        second.stop()
        yield Wait(f"{second.name} to stop its intake", lambda: second.stopping)
        second.stop()
        self._fault(f"{second.name} was told twice to stop: it leaves what it has not started")
        replaced = "the worker to be replaced"
        yield Wait(
            replaced, lambda: first.worker_deaths > 0 and len(first.workers) == self._size.workers
        )
        self._screen.event(f"{first.name} has replaced its worker")
        yield Wait("the new consumer to join", lambda: fourth.joined)
        self._screen.event(f"{fourth.name} has joined the group")
        yield Wait("parcels to be dead", lambda: self._producer.hopeless_are_dead)
        self._screen.event("parcels are dead: no carrier goes where they should")
        self._operator.finds_carrier()
        moved = self._operator.retries_parcels()
        self._screen.event(f"an operator found a carrier, and retried {moved} dead parcels")
        yield from self._close_shop()

    def _short_script(self) -> Iterator[Wait]:
        yield Wait("the shop to be busy", lambda: self._circle.sells)
        self._fault(self._circle.kill_storefront())
        yield from self._close_shop()

    def _close_shop(self) -> Iterator[Wait]:
        yield Wait("the shop to be busy again", lambda: self._circle.sells)
        self._circle.close_shop()
        self._screen.event("the shop is closed; what was ordered is brought to its end")

    def _answered(self, share: float) -> bool:
        return len(self._producer.answers) >= share * self._size.requests

    def _fault(self, text: str) -> None:
        self.faults.append(text)
        self._screen.event(text)

    # Turns

    def _turn(self, waits_for: str) -> None:
        """One round of everything."""
        began = time.monotonic()
        for consumer in self._consumers:
            consumer.look()
        self._circle.look()
        self._producer.send(began)
        self._producer.read(time.monotonic())
        producer = self._producer
        self._screen.show(
            View(
                waits_for=waits_for,
                planned=producer.planned,
                sent=producer.sent,
                again=producer.sent_again,
                answered=len(producer.answers),
                states=Counter(producer.states),
                programs={
                    **{consumer.name: consumer.does for consumer in self._consumers},
                    **self._circle.does,
                },
            )
        )
        time.sleep(max(0.0, TURN - (time.monotonic() - began)))

    def _until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise DemoFailed(f"waited {seconds:g} s for {what}")
            for consumer in self._consumers:
                consumer.look()
            time.sleep(TURN)

    def _start(self, name: str) -> Instance:
        environment = {
            **self._place.environment(),
            "ONCEPOOL_WORKERS": str(self._size.workers),
            "ONCEPOOL_MAX_IN_HAND": str(self._size.max_in_hand),
        }
        consumer = Instance(name, environment, self._place.folder)
        self._open.callback(consumer.close)
        self._consumers.append(consumer)
        self._screen.event(f"{name} starts (pid {consumer.pid})")
        return consumer

    # The end

    def _finish(self) -> None:
        """Lets the consumers take what is left (copies, malformed messages), and end."""
        self._producer.flush()
        self._until(lambda: self._group.behind() == 0, "the group to take what is left", DRAIN)
        database = self._place.database
        self._until(lambda: facts.waiting(database) == 0, "the queue to run dry", QUEUE_DRAIN)
        living = [consumer for consumer in self._consumers if consumer.alive]
        for consumer in living:
            consumer.stop()
        for consumer in living:
            consumer.ended()
            self._screen.event(f"{consumer.name} drained and ended")

    def _book(self) -> Book:
        known = facts.read(self._place.database, self._place.charges)
        dropped = sum(consumer.dropped for consumer in self._consumers)
        return Book(
            messages=self._producer.messages,
            rows=known.rows,
            attempts=known.attempts,
            letters=known.letters,
            effects=known.effects,
            answers=self._producer.answers,
            gaps=[*self._gaps, Gap("commit", dropped)],
            waits=self._producer.waits,
            revived=known.revived,
            parked=known.parked,
            read_again=known.read_again,
            suspects=sum(consumer.suspects for consumer in self._consumers),
        )
