"""The relay: threads for each sender. Any number of relays may work side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Self

from feedback.client.forks import watch
from feedback.errors import ConfigurationError
from feedback.green_threads import refuse_green_threads
from feedback.outbox.names import check_schema_name, schema_from_environment
from feedback.outbox.relay.answers import AnswerPolicy, Ended
from feedback.outbox.relay.database import Bounds
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.loop import AnswerLoop, LoopState, OutboxLoop, SenderLoop
from feedback.outbox.relay.record_loop import RecordLoop
from feedback.outbox.relay.records import RecordSource
from feedback.outbox.relay.settling import Settling
from feedback.outbox.relay.turns import SEND_TIMEOUT
from feedback.status.opening import open_store
from feedback.status.store import StatusStore
from feedback.tracing.switch import TRACING

STOP_TIMEOUT: Final = SEND_TIMEOUT + 10.0
"""Seconds: a turn, and the brokers asked once."""
_READ: Final = 2.0
"""Seconds that a step on the connection to Redis may take."""


class Route(NamedTuple):
    """Where a sender's requests go."""

    topic: str
    kafka: Mapping[str, Any]
    """librdkafka's properties, `bootstrap.servers` among them."""
    redis: str | StatusStore | None = None
    """Where their statuses are; None: what becomes of them is not followed."""
    redis_prefix: str = "oncepool"
    results_topic: str | None = None
    """Where their result records are, on the same brokers."""


class _State(Enum):
    """Of a relay's threads."""

    NEW = auto()
    """None has begun."""
    RUNNING = auto()
    CLOSED = auto()
    """They were told to end, and some may still be at it."""
    ENDED = auto()
    FORKED = auto()
    """They stayed in the process that this one was forked from."""


class Relay:
    """Sends what stands in an outbox, and follows it to its end, until it is closed.

    Started and closed by `with`, or by start() and close(), as often as one likes. What it leaves
    unsent, or had sent and not marked, the next one sends, under the same ids.
    """

    def __init__(
        self,
        database_url: str,
        routes: Mapping[str, Route],
        *,
        schema: str | None = None,
        policy: AnswerPolicy | None = None,
        settled: Callable[[Ended], object] | None = None,
        inbox: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        """`routes` are by the names of senders, `default` among them. Rows of others stay.

        `schema`: ONCEPOOL_OUTBOX_SCHEMA, or `oncepool_outbox`, unless given. `settled` is called in
        a thread of the relay's after a request's end was written, at most once; what must not be
        missed comes from the table `inbox`, which `inbox` has filled. Raises ConfigurationError.
        """
        refuse_green_threads("a relay")
        if not routes:
            raise ConfigurationError("a relay needs a route for one sender at least")
        name = schema_from_environment() if schema is None else check_schema_name(schema)
        policy = policy or AnswerPolicy()

        def loops() -> list[OutboxLoop]:
            made: list[OutboxLoop] = []
            for sender, route in routes.items():
                made += _loops(
                    database_url, name, sender, route,
                    policy=policy, settled=settled, inbox=inbox, bounds=bounds,
                )  # fmt: skip
            return made

        self._new_loops = loops
        self._loops = loops()
        self._state = _State.NEW
        watch(self)

    def forked(self) -> None:
        """Called in a process that was forked: what runs stays with the one that started it."""
        if self._state in (_State.NEW, _State.ENDED):
            self._loops = self._new_loops()  # a thread from before it counts as one that has ended
            self._state = _State.NEW
        else:
            self._state = _State.FORKED

    def start(self) -> Self:
        """Begins, also anew after close(); goes on where it runs. Nothing has to be reachable.

        Raises ConfigurationError in a process that was forked while its threads ran.
        """
        if self._state is _State.FORKED:
            raise ConfigurationError(
                "this relay ran when its process was forked, and is of no use here: make one in"
                " each process, after the fork, or close it before"
            )
        if self._state is _State.RUNNING:
            return self
        if self._state is not _State.NEW:  # a thread begins once
            self._loops = self._new_loops()
        self._state = _State.RUNNING
        try:
            for loop in self._loops:
                loop.start()
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout: float = STOP_TIMEOUT) -> bool:
        """Ends after what is on its way; False where some thread has not ended in time.

        Without start() there is nothing to end, nor in a process that was forked while it ran.
        """
        if self._state in (_State.NEW, _State.FORKED):
            return True
        self._state = _State.CLOSED
        loops = self._loops  # start() may make others meanwhile
        for loop in loops:
            loop.stop()
        end = time.monotonic() + timeout
        joined = [loop.join(max(0.0, end - time.monotonic())) for loop in loops]
        if all(joined) and self._state is _State.CLOSED:  # and not begun anew meanwhile
            self._state = _State.ENDED
        return all(joined)

    def states(self) -> list[LoopState]:
        """How each thread is doing."""
        return [loop.state for loop in self._loops]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _loops(
    url: str,
    schema: str,
    sender: str,
    route: Route,
    *,
    policy: AnswerPolicy,
    settled: Callable[[Ended], object] | None,
    inbox: bool,
    bounds: Bounds | None,
) -> list[OutboxLoop]:
    """One sender's: its own, and those that read what became of its rows."""
    topic = TopicSender(route.topic, route.kafka, spans=TRACING.spans())
    of_sends = _store(route.redis, route.redis_prefix)
    made: list[OutboxLoop] = [
        SenderLoop(url, schema, sender, topic, bounds=bounds, policy=policy, store=of_sends)
    ]
    store = _store(route.redis, route.redis_prefix)
    if store is not None:
        settling = Settling(schema, sender, store, policy, inbox=inbox, settled=settled)
        made.append(AnswerLoop(url, sender, store, settling))
    if route.results_topic:
        source = RecordSource(route.results_topic, f"{schema}-relay-{sender}", route.kafka)
        own = Settling(schema, sender, store, policy, inbox=inbox, settled=settled)
        made.append(RecordLoop(url, sender, source, own))
    return made


def _store(redis: str | StatusStore | None, prefix: str) -> StatusStore | None:
    if redis is None:
        return None
    if not isinstance(redis, str):
        return redis
    try:
        return open_store(redis, prefix, timeout=_READ)
    except ValueError as error:
        raise ConfigurationError(f"redis: {error}") from None
