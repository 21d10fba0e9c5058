"""Finds out whether a client of librdkafka has lost its brokers: asks them through another, too."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from feedback.broker_contact import PAUSE, BrokerContact

log = logging.getLogger("oncepool.kafka")

ERRORS_ONLY: Final = 3
"""The `log_level`, as syslog has it, of clients that are given another kind's properties: each that
is none of theirs draws a warning."""
_ANSWER: Final = 5.0
_CALLBACK: Final = "error_cb"
_OTHER_CALLBACKS: Final = ("stats_cb", "throttle_cb")
_NOT_FOR_ANOTHER: Final = frozenset(
    {
        _CALLBACK, *_OTHER_CALLBACKS, "on_delivery", "on_commit", "logger",
        "transactional.id", "group.instance.id",
    }
)  # fmt: skip
LOST: Final = "it finds no broker any more, others do"


class _Silent:
    """What another client says of its trouble is nobody's concern."""

    def log(self, *_: Any) -> None: ...


class BrokerProbe:
    """Of one client at a time. All but what is heard is for the thread that serves the client."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        find: Callable[[Mapping[str, Any]], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`properties` are those of the client. `find`: whether others find brokers with them."""
        self._properties = properties
        self._others_find = find or _find
        self._clock = clock
        self._contact = BrokerContact(clock)
        self._served = threading.local()
        self._look: threading.Thread | None = None
        self._look_at = 0.0
        self._found = False
        self._left: list[Any] = []
        """Consumers to close; where that could not begin it is tried again from `_close_at` on."""
        self._close_at = 0.0

    def properties(self) -> dict[str, Any]:
        """Those for a client that is asked about here: it tells of its errors, also who did.

        What a callback of its user's raises does not end the call that serves the client.
        """
        guarded = {
            name: partial(_tell, name, given)
            for name in _OTHER_CALLBACKS
            if callable(given := self._properties.get(name))
        }
        return {**self._properties, **guarded, _CALLBACK: self.heard}

    def heard(self, error: KafkaError) -> None:
        """The client's error_cb, in whichever thread polls it; that of its user comes after it."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self._contact.all_down()
        given = self._properties.get(_CALLBACK)
        if given is not None:
            _tell(_CALLBACK, given, error)

    def before_serving(self) -> None:
        """The client is about to be served by a call in this thread, as heard_from() has it."""
        self._served.since = self._contact.outages

    def heard_from(self) -> None:
        """The client has heard from a broker: a message is confirmed, or has come. In any thread.

        That was after the outages that it had told of before this thread served it, where
        before_serving() was told so: a call that hands out many messages tells of a later outage
        before what came ahead of it is looked at.
        An answer about brokers may be long in coming behind what they have to do first.
        """
        self._contact.heard_from(getattr(self._served, "since", self._contact.outages))

    @property
    def away_for(self) -> float | None:
        """Seconds in which all were down and the client has heard from none; None: not known so.

        It tells so only while it is served.
        """
        return self._contact.away_for

    def stays(self) -> None:
        """No other client could be made: whether it is lost is found out again, after a while."""
        self._contact.all_down()

    def lost(self, client: Any) -> bool:
        """Whether another client has to be made; asks this one where it is time, 2 s at most."""
        self._close_left()
        timeout = self._contact.due()
        if timeout is None or not self._found_by_another():
            return False
        try:
            answered = bool(client.list_topics(timeout=timeout).brokers)
        except KafkaException:
            answered = False
        return self._contact.asked(answered=answered)

    def leave(self, consumer: Any) -> None:
        """Closes one that is lost in a thread of its own.

        It may take a minute to find that it can tell nobody. Where the system has no thread left
        that is tried again while `lost` is asked.
        """
        self._left.append(consumer)
        self._close_left()

    def _close_left(self) -> None:
        while self._left and self._clock() >= self._close_at:
            try:
                threading.Thread(target=self._left[0].close, name="leave", daemon=True).start()
            except RuntimeError as error:
                log.warning("a client that is lost can't be closed yet: %s", error)
                # Freed in its place, as at the end of the process, it would hold up who does that.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._left[0]))
                self._close_at = self._clock() + PAUSE
                return
            del self._left[0]

    def _found_by_another(self) -> bool:
        """Whether another client has found brokers since this was true last.

        Looks from a thread of its own, every 5 s: the client's goes on meanwhile.
        """
        if self._look is None:
            if self._clock() >= self._look_at:
                self._begin_look()
            return False
        if self._look.is_alive():
            return False
        self._look = None
        self._look_at = self._clock() + (0.0 if self._found else PAUSE)
        return self._found

    def _begin_look(self) -> None:
        """Once the system has a thread for it."""
        look = threading.Thread(target=self._ask, name="brokers", daemon=True)
        try:
            look.start()
        except RuntimeError as error:
            log.warning("whether there are brokers is not looked for yet: %s", error)
            self._look_at = self._clock() + PAUSE
        else:
            self._look = look

    def _ask(self) -> None:
        self._found = False
        self._found = self._others_find(self._properties)


class _Within(threading.local):
    callback = False


_within = _Within()


def in_callback() -> bool:
    """Whether a callback of a user's runs in this thread, inside a call that serves a client.

    It must wait for no other thread: that may be in such a callback, too.
    """
    return _within.callback


def _tell(name: str, given: Callable[..., object], *args: object) -> None:
    """What it raises is logged, but for what is to end the program, in its main thread.

    Out of the call that serves the client it would take with it what that has in hand, and end the
    thread that serves it.
    """
    outer, _within.callback = _within.callback, True
    try:
        given(*args)
    except BaseException as error:
        ends = not isinstance(error, Exception)
        if ends and threading.current_thread() is threading.main_thread():
            raise
        log.exception("%s raised", name)
    finally:
        _within.callback = outer


def _find(properties: Mapping[str, Any]) -> bool:
    """Whether a client that is made now finds brokers. A producer, as it joins nothing."""
    given = {name: value for name, value in properties.items() if name not in _NOT_FOR_ANOTHER}
    try:
        another = Producer({**given, "log_level": 0}, logger=_Silent())
        return bool(another.list_topics(timeout=_ANSWER).brokers)
    except KafkaException:
        return False
