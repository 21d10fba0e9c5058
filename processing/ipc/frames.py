"""All messages between the main process and its children: a closed list, and how they are encoded.

On the wire a frame is a length (4 bytes, little endian) and a plain tuple written by ``marshal``:
the frame's number in the list, then its fields. Version 2 of marshal because later ones write
object references, whose presence depends on reference counts; marshal because it is the fastest
codec of plain values in the standard library, and both ends are the same interpreter of the same
program.

Fields hold plain values only: None, bool, int, float, str, bytes, and tuples, lists, dicts of them.
"""

# long: a closed list, which is read as one
from __future__ import annotations

import marshal
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from feedback.backend import Backend
from feedback.contract.record import Record
from feedback.metrics.durations import DurationKey

MARSHAL_VERSION: Final = 2
HEADER: Final = struct.Struct("<I")
"""The length that stands before each frame's body."""
UNUSABLE: Final = "the journal can't be used"

Claim: TypeAlias = tuple[str, int]
"""A claimed row of the waiting queue: request id and claim order."""
TypeBounds: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""Most at once: for each instance, in total, of the total here now, and soon; None: not limited."""
CountKey: TypeAlias = tuple[str, str, str]
"""Request type, state, code."""
ScheduleFields: TypeAlias = tuple[str, str, str, str, str, bytes | None]
"""The fields of `feedback.contract.schedule.Schedule`, which needs more than main has to load."""


NO_ORDER: Final = 0
"""In place of a claim's order: the row was not claimed, as it is in doubt."""
ASK: Final = "ask"
"""In place of a verdict: the request is in doubt, and its check is to be asked."""
Loss: TypeAlias = tuple[float, float, str]
"""When a start began and when its worker ended, of CLOCK_MONOTONIC, and how that ended."""


class Suspect(NamedTuple):
    """Why a record has to be looked up in the journal before it may run again."""

    verdict: str | None
    """What to store where the journal has no row of this run, or ASK; None: run it again."""
    backends: tuple[Backend, ...]
    """Database backends that were at work on it, which must be gone before the look-up."""
    tokens: tuple[str, ...]
    """Tokens of the chunks that it was in: its claim may carry any of them."""
    crashes: int = 0
    """Its starts that ended with their worker, as far as this instance knows."""
    reason: str | None = None
    """What the producer is told with the verdict; None: what the verdict says by itself."""
    losses: tuple[Loss, ...] = ()
    """Those starts, in their order."""
    refused: bool = False
    """The last time the database refused what is to be asked or written about it."""
    unclear: int = 0
    """Starts of it alone whose COMMIT had no answer, though the database could be reached."""

    @property
    def decided(self) -> bool:
        """Its end is known but for the journal's word: looked up it is, but not run again."""
        return self.verdict is not None and self.verdict != ASK


# To every child


class Configure(NamedTuple):
    """The first frame of every child, once: what it has to know."""

    settings: dict[str, Any]
    """The fields of its settings class."""


class Stop(NamedTuple):
    """End after what is being done; nothing more will come."""


# From every child


class CannotServe(NamedTuple):
    """The child can't do its work, and a restart would not help."""

    reason: str
    """For the operator: its last line says what failed, a traceback before it where."""


# To a worker


class RunChunk(NamedTuple):
    """Run these records, after the chunks that were sent before; none: connect to the database."""

    number: int
    token: str
    """What the chunk's claims carry; no other chunk of any instance has it."""
    records: list[Record]
    suspect: Suspect | None
    """Set where the one record has to be looked up first."""
    returns: int
    """Frames by which this worker has given records back, as far as main has taken them. A chunk
    that was sent before main knew of the last one may hold later records of the same keys: it is
    given back whole."""
    seat: int | None = None
    """Where its one record's call is shown, which runs beside others; None: no call."""


class Recall(NamedTuple):
    """Give back what has not been started."""


class Cancel(NamedTuple):
    """This request of a chunk shall come to an end, as at its deadline, and not run again.

    It means nothing any more once that request has ended.
    """

    chunk: int
    place: int
    """Its index in the chunk."""
    reason: str
    """Who wants it, and why."""


class RenewLeases(NamedTuple):
    """The maintenance process does not come to it: as soon as nobody uses the worker's session."""

    claims: list[Claim]
    """Of waiting rows, in hand of this instance."""
    calls: list[str]
    """Tokens of its chunks, which may have made external calls."""


# From a worker


class Connected(NamedTuple):
    """The worker has a new connection: nothing was done there yet."""

    backend: Backend


class WorkerReady(NamedTuple):
    """The app is loaded, and the database was tried."""

    types: list[str]
    """Request types of the app."""
    at_once: dict[str, int]
    """Type -> the handler's `max_at_once`, where it has one."""
    decoded: list[str]
    """Topics whose messages only the app's decoders can read."""
    pure_once: tuple[str, ...]
    """Types of pure computation that must not be run again by themselves."""
    comparable: dict[str, bool] = {}  # noqa: RUF012 - never written to
    """Type of the app -> whether producers can make its fingerprint."""
    schedules: tuple[ScheduleFields, ...] = ()
    """What the app has come by the clock."""
    concurrency: dict[str, int] = {}  # noqa: RUF012 - never written to
    """Type -> how many calls of it one worker may have open, of `async def` handlers."""
    checked: tuple[str, ...] = ()
    """Types with effects outside whose handlers have a check."""
    uses: tuple[str, ...] = ()
    """What of the journal the app uses beside what all do (feedback.journal.privileges)."""


class Returned(NamedTuple):
    """Records that were not started and never will be in this chunk. Counts as a return."""

    chunk: int
    indices: list[int]


class Report(NamedTuple):
    """What became of a chunk; indices that stand in neither list have ended or were `Returned`.

    With an index in one of the lists it counts as a return.
    """

    chunk: int
    returned: list[int]
    """Indices that were not run, for no fault of theirs."""
    unclear: list[int]
    """Indices whose COMMIT may have landed, or whose end could not be written though their handler
    must not be entered again."""
    times: dict[str, tuple[int, float]]
    """Kind -> (requests, seconds in handlers)."""
    counts: dict[CountKey, int]
    database_up: bool
    due_in: float | None = None
    """Seconds until the first request that was written down to wait is due."""
    leaving: str | None = None
    """Why this worker should be replaced now."""
    durations: dict[DurationKey, float] | None = None
    """What its requests took, for metrics; None where nobody wants them."""
    statuses_dropped: int = 0
    """Statuses that this worker has dropped since its last report."""
    alone: list[int] | None = None
    """Those that come back and go alone the next time: somebody keeps them locked."""
    held_up: list[float] | None = None
    """Seconds that each of those has kept its chunk for."""
    unended: list[Backend] | None = None
    """Those of its suspect's backends that did not end when they were told to: it comes back. None:
    it has no suspect, or one that needs no look at the journal."""
    refused: bool = False
    """Its suspect comes back because the database, which works, refused what was to be asked or
    written about it."""
    elsewhere: list[int] | None = None
    """Those of `alone` that whoever had them before may be at yet: they are tried after a pause."""


# To the maintenance process


class Heartbeat(NamedTuple):
    """The main loop turns; is answered by `Alive`."""

    facts: dict[str, Any]
    """What the health endpoints and the registration show."""


class Counts(NamedTuple):
    """Requests that have ended, to be added to the counters."""

    counts: dict[CountKey, int]


class Measurements(NamedTuple):
    """For metrics: what workers have reported since the last one. Goes before their `Counts`."""

    types: list[str]
    """Those of the app: no others are shown by their names."""
    durations: dict[DurationKey, float]
    chunks: dict[int, int]
    """Requests of a chunk -> how many such chunks there were."""
    statuses_dropped: int


class DeclareApp(NamedTuple):
    """What the app is like, in place of what was said of it before."""

    types: tuple[str, ...]
    """Those that have handlers."""
    schedules: tuple[ScheduleFields, ...]
    """What it has come by the clock."""
    uses: tuple[str, ...]
    """As in `WorkerReady`."""


class ProbeDatabase(NamedTuple):
    """Say (`DatabaseState`) whether the database can be reached."""


class WantRows(NamedTuple):
    """Rows of the waiting queue are wanted, in place of what was wanted before."""

    order: int
    """Under which they are claimed; rises."""
    most: int
    """0: none any more."""
    limits: dict[str, int]
    """Type -> most rows of it, where that is less."""
    paused: list[str]
    """Types of which none is wanted."""
    most_bytes: int = 32 * 1024 * 1024
    """Of all of them together; one row more than fits may come."""


class RowDueIn(NamedTuple):
    """A row was written that is due in so many seconds."""

    seconds: float


class RenewClaims(NamedTuple):
    """These claims are in hand: their leases are to be extended."""

    claims: list[Claim]
    all_to: int = 0
    """Under orders up to this one no others of this instance are in hand: those are given back."""


class RenewCalls(NamedTuple):
    """Chunks with these tokens are in hand: leases of their external calls are to be extended."""

    tokens: list[str]


class ReleaseClaims(NamedTuple):
    """These claims are given back."""

    claims: list[Claim]
    backends: list[Backend]
    """Of workers that died with some of them, to be gone before."""
    begun: bool = False
    """They may have been started, and have not come to an end."""
    in_place: bool = False
    """They are due since they were before the claim: nobody claims them here again."""


class WantDoubts(NamedTuple):
    """Requests in doubt are wanted whose checks are to be asked now; is answered by `DueRows`."""

    types: tuple[str, ...]
    """Those that have checks here."""
    most: int


class EndCalls(NamedTuple):
    """The workers that made these calls outside are gone, and nobody runs them again here."""

    codes: dict[str, str]
    """The claim's token -> why the call has no end of its own."""
    backends: list[Backend]
    """The workers' database backends, to be gone before."""
    blamed: list[str]
    """The tokens of those that their workers crashed in: that is counted."""


class Park(NamedTuple):
    """These records are to wait in the journal for any instance; is answered by `PartAnswered`."""

    part: int
    code: str
    records: list[Record]
    decoded: list[str]
    """Topics whose messages only user code can read."""
    starts: list[tuple[int, int]]
    """Of suspects, how many starts each had and how many of them crashed; else empty."""
    backends: list[Backend]
    """Of suspects, the dead workers' database backends, to be gone before."""
    limited: bool = False
    """For the limits of their types; else because this instance stops."""
    pure_once: tuple[str, ...] = ()
    """Types that leave no row when they are done, and must not be run again by themselves."""
    comparable: dict[str, bool] = {}  # noqa: RUF012 - never written to
    """Type of the app -> whether producers can make its fingerprint."""


class Refuse(NamedTuple):
    """These records are to be answered `failed/<code>`; is answered by `PartAnswered`."""

    part: int
    code: str
    records: list[Record]
    decoded: list[str]
    """Topics whose messages only user code can read: those become dead letters."""


# From the maintenance process


class JournalUnusable(NamedTuple):
    """The database was away at the first look; now it answers, and its journal is of no use."""

    detail: str

    @property
    def reason(self) -> str:
        """What is said where nothing but ending helps."""
        return f"{UNUSABLE}: {' '.join(self.detail.split())}"


class MaintenanceReady(NamedTuple):
    """The first look at the database is over."""

    schema: str
    """`ok`, `missing`, `too_new` or `unreachable`."""
    detail: str

    @property
    def ok(self) -> bool:
        """The database answers, and its journal can be used."""
        return self.schema == "ok"

    @property
    def unusable(self) -> JournalUnusable | None:
        """The verdict on a journal that can't be used; None also where nobody could look at it."""
        found = self.schema in ("missing", "too_new")
        return JournalUnusable(self.detail) if found else None


class Alive(NamedTuple):
    """The answer to a heartbeat."""


class DatabaseState(NamedTuple):
    """Whether the database can be reached, where that is news or was asked for."""

    up: bool
    detail: str
    turned_away: bool = False
    """The server is there and lets nobody new in: sessions that stand may do their work."""


class LeasesRenewed(NamedTuple):
    """All leases are renewed that were to be."""


class DueRows(NamedTuple):
    """Rows that were claimed under an order, those that are due first first."""

    order: int
    rows: list[tuple[Record, str | None]]
    """Each with the verdict that is only to be written, ASK, or None where it is to be run."""


class PartAnswered(NamedTuple):
    """So many records of a part that was to be parked or refused are answered for."""

    part: int
    answered: int
    parked: int = 0
    """How many of these wait in the journal now."""


class PartStands(NamedTuple):
    """A part that was to be parked waits for the end of a dead worker's database session."""

    part: int


class CancelAsked(NamedTuple):
    """An operator wants a request to be cancelled that runs here."""

    request_id: str
    reason: str
    """Who wants it, and why."""
    chunk: int | None = None
    """The chunk in which it was seen to run; None: whichever it runs in."""

    def means(self, request_id: str | None, chunk: int) -> bool:
        """Whether what runs there is the request that is to end, and no later run of its id."""
        return request_id == self.request_id and self.chunk in {None, chunk}


class LimitsFound(NamedTuple):
    """What operators have set, as far as it concerns this instance; heartbeats confirm it."""

    number: int
    workers: int | None
    """Worker processes; None: as configured."""
    types: dict[str, TypeBounds]
    paused: list[str]


ToWorker: TypeAlias = Configure | RunChunk | Recall | Cancel | RenewLeases | Stop
FromWorker: TypeAlias = Connected | WorkerReady | Returned | Report | CannotServe
ToMaintenance: TypeAlias = (
    Configure
    | Heartbeat
    | Counts
    | Measurements
    | DeclareApp
    | ProbeDatabase
    | WantRows
    | WantDoubts
    | RowDueIn
    | RenewClaims
    | RenewCalls
    | ReleaseClaims
    | EndCalls
    | Park
    | Refuse
    | Stop
)
FromMaintenance: TypeAlias = (
    MaintenanceReady
    | Alive
    | DatabaseState
    | LeasesRenewed
    | DueRows
    | PartAnswered
    | PartStands
    | CancelAsked
    | LimitsFound
    | JournalUnusable
    | CannotServe
)
Frame: TypeAlias = ToWorker | FromWorker | ToMaintenance | FromMaintenance

_KINDS: Final[Sequence[Any]] = get_args(Frame)
_NUMBERS: Final[Mapping[type[Frame], int]] = {kind: n for n, kind in enumerate(_KINDS)}


def encode(frame: Frame) -> bytes:
    """The bytes of one frame, its length in front.

    Raises ValueError where an item is not a plain value.
    """
    # marshal takes exact tuples only; of named ones there is at most this level.
    fields = [tuple(field) if isinstance(field, tuple) else field for field in frame]
    body = marshal.dumps((_NUMBERS[type(frame)], *fields), MARSHAL_VERSION)
    return HEADER.pack(len(body)) + body


def decode(body: memoryview | bytes) -> Frame:
    """The frame of a body, as `encode` wrote it after the length."""
    number, *fields = marshal.loads(body)  # noqa: S302 - from our own process
    frame: Frame = _KINDS[number](*fields)
    if isinstance(frame, RunChunk) and frame.suspect is not None:
        return frame._replace(suspect=Suspect(*frame.suspect))
    return frame
