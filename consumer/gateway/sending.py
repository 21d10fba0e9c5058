"""Where requests go: to Kafka, or into an outbox. Safe there, they may be answered with 202."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol, cast

from consumer.gateway.brokers import Brokers
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.race import unless
from consumer.gateway.statuses import Statuses
from feedback.client.async_client import AsyncClient
from feedback.client.core import resend_after
from feedback.client.message import SubmitOptions
from feedback.contract.states import State
from feedback.errors import (
    ClientClosed,
    DeliveryFailed,
    DeliveryPending,
    QueueFull,
    RequestIdInUse,
    WaitTimeout,
)
from feedback.journal.connections import Connection
from feedback.outbox.connections import run
from feedback.outbox.rows import AddOptions, row_of
from feedback.outbox.steps import Steps, adding, types_of
from feedback.status.status import Status

UNSENT: Final = "unsent"
"""Code of a request that is in the outbox alone."""
WRITE_WITHIN: Final = 10.0
"""Seconds in which an outbox has to take a request."""
LEAST_SILENCE: Final = 5.0
"""Seconds without news, at least, before what is waited for is sent again: a wait is often shorter
than lag and queue, and copies would be most of what is sent where there is most to do."""
STOPPING: Final = "this gateway is stopping: send it again with the same key"


class Sender(Protocol):
    """Takes requests."""

    async def send(
        self, type: str, payload: bytes, options: SubmitOptions, *, new: bool = False
    ) -> Status:
        """Returns `accepted` when the request is safe. `new`: no status stands under its id.

        Raises ValueError for what no consumer takes, OncepoolError where it may not have arrived.
        """

    async def call(
        self, type: str, payload: bytes, options: SubmitOptions, seconds: float
    ) -> Status:
        """As send(), and waits so long for a settled status; until the gateway stops, where sooner.

        What has not been sent by then is refused.
        """


class KafkaSender:
    """Sends requests, and returns when the brokers have them."""

    def __init__(
        self,
        client: AsyncClient,
        brokers: Brokers,
        timeout: float,
        stopped: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`timeout` is in seconds, for the brokers to confirm a request.

        While they are known to be away nothing is handed to the client. `stopped` returns when all
        waits end.
        """
        self._client = client
        self._brokers = brokers
        self._timeout = timeout
        self._stopped = stopped

    async def send(
        self, type: str, payload: bytes, options: SubmitOptions, *, new: bool = False
    ) -> Status:
        """As Sender has it."""
        submit = self._client.submit_new if new else self._client.submit
        await self._brokers.refuse_away()
        with self._noted():
            return await self._confirmed(await submit(type, payload, **options))

    async def call(
        self, type: str, payload: bytes, options: SubmitOptions, seconds: float
    ) -> Status:
        """As Sender has it; meanwhile it is sent again where no answer comes."""
        name = options["request_id"]
        assert name is not None  # noqa: S101  (made here where none was given)
        await self._brokers.refuse_away()
        with self._noted():
            return await self._called(name, type, payload, options, seconds)

    async def _called(
        self, name: str, type: str, payload: bytes, options: SubmitOptions, seconds: float
    ) -> Status:
        before, stopping = self._client.submission(name), ClientClosed(STOPPING)
        calling = self._call(type, payload, options, seconds)
        try:
            return await unless(calling, self._stopped(), stopping)
        except WaitTimeout as late:
            accepted = await self._confirmed(late.id)
            return late.status or accepted
        except ClientClosed as closed:
            if closed is not stopping or self._client.submission(name) is before:
                raise
        return await self._confirmed(name)

    async def _call(
        self, type: str, payload: bytes, options: SubmitOptions, seconds: float
    ) -> Status:
        given = dict(options)
        run_timeout = given.pop("timeout", None)
        calling: Any = self._client.call  # its options are those of submit() but for these
        silence = max(LEAST_SILENCE, resend_after(seconds))
        return cast(
            "Status",
            await calling(
                type, payload, timeout=seconds, run_timeout=run_timeout, resend_after=silence,
                **given,
            ),
        )  # fmt: skip

    async def _confirmed(self, id: str) -> Status:
        # A little longer than the producer tries: it says more of what is wrong.
        fields = await self._client.delivered(id, self._timeout + 1)
        self._brokers.confirmed()
        return Status.decode(fields.encode())

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """What is not confirmed may say that the brokers are away."""
        try:
            yield
        except (DeliveryFailed, DeliveryPending, QueueFull) as error:
            if not isinstance(error, DeliveryFailed) or error.oversize is None:
                self._brokers.unconfirmed(str(error))
            raise


class OutboxSender:
    """Writes requests into an outbox, each in a transaction of its own."""

    def __init__(
        self,
        threads: DatabaseThreads,
        schema: str,
        statuses: Statuses,
        uncompared: Collection[str] = (),
    ) -> None:
        """`uncompared` are types whose payloads can't be compared."""
        self._threads = threads
        self._schema = schema
        self._statuses = statuses
        self._uncompared = uncompared

    async def send(
        self, type: str, payload: bytes, options: SubmitOptions, *, new: bool = False
    ) -> Status:
        """As Sender has it. Raises RequestIdInUse besides."""
        del new  # its outbox says so itself
        row = row_of(type, payload, cast("AddOptions", options))
        try:
            await self._run(lambda: adding([row], self._schema))
        except RequestIdInUse:
            # The outbox compares payloads; what stands there is this request, written otherwise.
            if type not in self._uncompared:
                raise
            if await self._run(lambda: types_of(row.id, self._schema)) != [type]:
                raise
        return Status(
            id=row.id, type=type, state=State.ACCEPTED, code=UNSENT, attempt=0, run=0,
            at=datetime.fromisoformat(row.fields["created_at"]), fingerprint=row.fingerprint,
        )  # fmt: skip

    async def call(
        self, type: str, payload: bytes, options: SubmitOptions, seconds: float
    ) -> Status:
        """As Sender has it."""
        accepted = await self.send(type, payload, options)
        return await self._statuses.wait(accepted.id, seconds) or accepted

    async def _run(self, steps: Callable[[], Steps]) -> list[str]:
        """Takes the steps, in a transaction of their own."""

        def work(connection: Connection) -> Any:
            with connection.transaction():
                return run(connection, steps(), self._schema)

        return cast("list[str]", await self._threads.run(work, WRITE_WITHIN, again=True))
