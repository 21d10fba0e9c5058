"""What is known of requests: Redis is asked first, and then the journal and the outbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from consumer.admin.lookup import may_change, newer
from feedback.client.async_client import AsyncClient
from feedback.contract.states import NOT_RUN, State
from feedback.errors import Conflict, DeliveryFailed, OncepoolError, StoreUnavailable, WaitTimeout
from feedback.status.status import Status, StatusFields

READ_WITHIN: Final = 3.0
"""Seconds in which a read of Redis has to have its turn, and to end."""
_FIRST_LOOK: Final = 1.0
_LONGEST_LOOK: Final = 8.0
"""Seconds between two looks at the journal, while somebody waits."""


def status_json(status: Status) -> bytes:
    """The status as it stands in Redis."""
    fingerprint = status.fingerprint
    return StatusFields(
        status.id, status.type, status.state, status.run, status.code, status.attempt, status.at,
        fingerprint=None if fingerprint is None else bytes.fromhex(fingerprint),
        result=status.result_json,
        error=status.error, reason=status.reason, retry_at=status.retry_at,
        superseded_by=status.superseded_by, journaled=status.journaled,
    ).encode()  # fmt: skip


class StatusSource(Protocol):
    """Knows requests by their ids."""

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order, None where it is not known. Raises OncepoolError."""


def _was_not_run(status: Status | None) -> bool:
    """Whether no consumer has run it, as far as Redis and the journal say."""
    if status is None or status.of_no_request:
        return True
    return status.state is State.FAILED and status.code in NOT_RUN


class Statuses:
    """Reads statuses, and waits for them to be settled. Nothing here waits without a bound."""

    def __init__(
        self, client: AsyncClient, journal: StatusSource | None, outbox: StatusSource | None
    ) -> None:
        self._client = client
        self._journal = journal
        self._outbox = outbox
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends all waits, as at their time-outs."""
        self._stopping.set()

    async def one(self, id: str) -> Status | None:
        """As read(), of one."""
        return (await self.read([id]))[0]

    async def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order, None where nobody knows it.

        Raises OncepoolError where something does not answer and nobody else knows one of them.
        """
        found: dict[str, Status | None] = {}
        problem: OncepoolError | None = None
        try:
            found = dict(zip(ids, await self._from_redis(ids), strict=True))
        except StoreUnavailable as error:
            problem = error
        open_ids = may_change(ids, found)
        if open_ids and self._journal is not None:
            try:
                stored = await self._journal.read(open_ids)
            except OncepoolError as error:
                problem = problem or error
            else:
                for name, row in zip(open_ids, stored, strict=True):
                    found[name] = newer(found.get(name), row) if row else found.get(name)
        if self._outbox is not None and (unrun := [n for n in ids if _was_not_run(found.get(n))]):
            try:
                rows = dict(zip(unrun, await self._outbox.read(unrun), strict=True))
            except OncepoolError as error:
                problem = problem or error
                found |= dict.fromkeys(unrun)  # its relay may have it run
            else:
                # What is open there is sent again, and what has ended there was heard of later.
                found |= {name: row for name, row in rows.items() if row is not None}
        if problem is not None and any(found.get(name) is None for name in ids):
            raise problem
        return [found.get(name) for name in ids]

    async def wait(self, id: str, seconds: float) -> Status | None:
        """As one(), as soon as it is settled, or after so many seconds."""
        end = time.monotonic() + seconds
        pause = _FIRST_LOOK
        told = False
        while True:
            status = await self.one(id)
            left = end - time.monotonic()
            if (status is not None and status.settled) or left <= 0 or self._stopping.is_set():
                return status
            if told:
                # Redis says so, and what counts more does not: it would say so at once.
                await self._sleep(min(left, pause))
                told = False
            else:
                told = await self._until_news(id, min(left, pause))
            pause = min(2 * pause, _LONGEST_LOOK)

    def stopping(self) -> bool:
        """Whether all waits end."""
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Returns when all waits end."""
        await self._stopping.wait()

    async def _sleep(self, seconds: float) -> None:
        """So long, or until all waits end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopped()

    async def _until_news(self, id: str, seconds: float) -> bool:
        """Whether Redis says that it is settled, within so many seconds."""
        waits = asyncio.ensure_future(self._client.wait(id, seconds))
        stops = asyncio.ensure_future(self.stopped())
        try:
            await asyncio.wait({waits, stops}, return_when=asyncio.FIRST_COMPLETED)
            if waits.done():
                waits.result()
                return True
        except WaitTimeout:
            pass
        except (Conflict, DeliveryFailed):
            # Of another one under its id, which was sent here: it is not asked about.
            await self._sleep(min(seconds, _FIRST_LOOK))
        finally:
            for task in (waits, stops):
                task.cancel()
        return False

    async def _from_redis(self, ids: Sequence[str]) -> list[Status | None]:
        try:
            async with asyncio.timeout(READ_WITHIN):
                return await self._client.statuses(ids)
        except TimeoutError:
            raise StoreUnavailable(
                f"nothing was read from Redis within {READ_WITHIN:g} s: it is slow, or others ask"
                " for very many or very large statuses"
            ) from None
