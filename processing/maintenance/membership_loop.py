"""What the maintenance process does in Redis besides statuses, in a thread of its own.

To look up the name of a server may take as long as a minute where no name server answers: frames
are taken meanwhile, or the main process would replace this one, and health endpoints would fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import redis

from feedback.errors import StoreUnavailable
from processing.cluster import other_groups, other_journals
from processing.cluster.cancellations import Cancellations
from processing.cluster.instances import connect
from processing.cluster.membership import Membership
from processing.cluster.quota import InstanceQuota
from processing.ipc.channel import ChannelClosed
from processing.ipc.frames import CancelAsked, Frame, LimitsFound
from processing.logs import BoundLogger
from processing.maintenance.health import Health
from processing.settings import MaintenanceSettings

SAY_AGAIN: Final = 60.0
"""Seconds after which it is said once more that others of the group use another journal."""
HANGS: Final = 3.0
"""Seconds after which a look that has not ended means that Redis is away."""


class MembershipLoop:
    """Registers this instance; tells limits, and which requests are to be cancelled."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        tell: Callable[[Frame], None],
        leave_to_others: Callable[[frozenset[str]], None],
        health: Health,
        log: BoundLogger,
    ) -> None:
        self._tell = tell
        self._leave_to_others = leave_to_others
        self._health = health
        self._log = log
        self._instance = settings.instance
        client = connect(settings.redis_url)
        self._cancellations = Cancellations(client, settings.redis_prefix)
        self._membership = Membership(
            client,
            settings.redis_prefix,
            settings.instance,
            interval=settings.register_interval,
            ttl=settings.register_ttl,
        )
        self.health_port: int | None = None
        """Where the health endpoints are, for others to know."""
        self._pause = min(settings.register_interval, settings.limits_interval)
        self._registered = True
        """Whether the last look at Redis worked, or none was tried yet."""
        self._left_to_expire = False
        """The main process was not heard: its registration is not renewed."""
        self._restored_at: datetime | None = None
        self._told: tuple[InstanceQuota | None, tuple[str, ...]] = (None, ())
        """The limits that the main process was told, and what of them could not be read."""
        self._other_groups: dict[str, tuple[str, ...]] = {}
        """Groups that were warned of, with their types."""
        self._other_journals: tuple[dict[str, str], float] = ({}, 0.0)
        """Instances that were warned of, with their journals, and when."""
        self._left_out: tuple[str, ...] = ()
        """Registrations that were warned of."""
        self._busy_since: float | None = None
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    # Called by the thread that takes frames

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def heard(self, facts: Mapping[str, Any]) -> None:
        """The main process said this of itself."""
        if self._membership.news(facts):
            # Others wait for what is given up here, and for what is needed.
            self._wake.set()

    def look_if_it_hangs(self) -> None:
        """Says so where Redis has not answered for some time; call it now and then."""
        since = self._busy_since
        if since is not None and (late := time.monotonic() - since) > HANGS:
            self._health.redis(up=False, detail=f"no answer for {late:.0f} s")

    def stop(self) -> None:
        """Removes the registration and ends; `join` waits for it."""
        self._stopping = True
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended. Else the registration stays until it expires."""
        self._thread.join(timeout)

    # The thread

    def _run(self) -> None:
        while not self._stopping:
            self._busy_since = time.monotonic()
            try:
                self._look_around()
            except ChannelClosed:
                return  # main is gone, and with it this process
            except Exception:  # noqa: BLE001 - it is tried again, whatever the bug
                self._log.exception("the look at limits and instances failed")
            self._busy_since = None
            self._wake.wait(self._pause)
            self._wake.clear()
        try:
            self._membership.remove()
        except (redis.RedisError, OSError):
            self._log.info("the registration stays until it expires: Redis is away")

    def _look_around(self) -> None:
        facts = self._health.facts
        if self.health_port is not None:
            facts["health_port"] = self.health_port
        if journal := self._health.journal:
            facts["journal"] = journal
        try:
            for asked in self._cancellations.take(self._instance):
                self._tell(CancelAsked(*asked))
            if self._main_is_silent():
                return
            portion = self._membership.turn(facts, time.monotonic())
        except (redis.RedisError, OSError, StoreUnavailable) as error:
            self._away(str(error))
        else:
            self._registered = True
            self._health.redis(up=True, detail="answers")
            self._leave_to_others(self._membership.known_elsewhere)
            self._warn_of_other_groups(self._membership.other_groups)
            self._warn_of_journals(self._membership.other_journals)
            self._warn_of_registrations(self._membership.left_out)
            if self._membership.restored_at != self._restored_at:
                self._restored_at = self._membership.restored_at
                self._log.warning(
                    "limits were gone from Redis: put back as this instance had them",
                    fields=self._membership.restored,
                )
            if portion is not None:
                self._tell_limits(portion)

    def _main_is_silent(self) -> bool:
        """Others wait for what it holds of limits, and it uses none: as if it had been killed."""
        silent, before = self._health.stale, self._left_to_expire
        self._left_to_expire = silent
        if silent and not before:
            self._log.warning(
                "the main process is silent: this instance's registration is left to expire, and"
                " its shares of limits go to others", age=round(self._health.age, 1),
            )  # fmt: skip
        return silent

    def _warn_of_other_groups(self, found: dict[str, tuple[str, ...]]) -> None:
        news = {g: types for g, types in found.items() if self._other_groups.get(g) != types}
        self._other_groups = found
        if news:
            self._log.warning(
                "another group under the same Redis prefix handles the same types: they take each"
                " other's waiting requests",
                groups=other_groups.in_words(news),
                advice=other_groups.ADVICE,
            )

    def _warn_of_journals(self, found: dict[str, str]) -> None:
        """Not ready as long as it is so: said again and again, as nothing is worse."""
        words, now = other_journals.in_words(found), time.monotonic()
        self._health.other_journals(words)
        known, at = self._other_journals
        if found == known and (not found or now - at < SAY_AGAIN):
            return
        self._other_journals = found, now
        if found:
            self._log.error(
                "instances of this group use another journal: requests that move between them run"
                " twice", own=self._health.journal, others=words, advice=other_journals.ADVICE,
            )  # fmt: skip
        else:
            self._log.info("all instances of this group that are seen use one journal")

    def _warn_of_registrations(self, left_out: tuple[str, ...]) -> None:
        news, self._left_out = left_out != self._left_out, left_out
        if left_out and news:
            self._log.warning(
                "registrations in Redis that cannot be read are left out: shares of limits are made"
                " without these instances", instances=left_out,
            )  # fmt: skip

    def _away(self, detail: str) -> None:
        if self._registered:
            self._log.warning("Redis is away: the last limits hold", detail=detail)
        self._registered = False
        self._membership.away()
        self._health.redis(up=False, detail=detail)
        self._health.other_journals("")

    def _tell_limits(self, portion: InstanceQuota) -> None:
        told, unread = self._told
        if self._membership.unread != unread:
            self._log.warning("unreadable limit fields ignored", fields=self._membership.unread)
        if portion != told:
            number = self._membership.telling(portion)
            self._tell(LimitsFound(number, **portion.plain()))
        self._told = (portion, self._membership.unread)
