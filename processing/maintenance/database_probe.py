"""Tries the database: whether it is there, takes writes and has the journal of this version."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import psycopg

from feedback.errors import JournalError, OncepoolError, SchemaTooNew
from feedback.journal.connections import Connection
from feedback.journal.database_errors import is_turned_away, is_unfit, outage_of
from feedback.journal.identity import journal_identity
from feedback.journal.migrations import KnownJournal, migrate
from feedback.journal.privileges import Use
from feedback.journal.probe import refused_work
from feedback.postgres import one_line
from processing.ipc.channel import ChannelClosed
from processing.ipc.frames import DatabaseState, JournalUnusable, MaintenanceReady
from processing.logs import BoundLogger
from processing.maintenance.connection import ListeningConnection
from processing.maintenance.database_health import DatabaseHealth
from processing.maintenance.health import Health
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings


class DatabaseProbe:
    """Nothing else in this process says that the database is away, or tells the main process so.

    Any thread may ask; the database thread tries.
    """

    def __init__(
        self,
        settings: MaintenanceSettings,
        connection: ListeningConnection,
        reporting: Reporting,
        health: Health,
        log: BoundLogger,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._reporting = reporting
        self._health = health
        self._log = log
        self.said_ready = False
        """The first try is over, whatever came of it."""
        self.blocked = False
        """The schema can't be used: nothing but stopping helps."""
        self._schema_checked = False
        self._journal = KnownJournal(settings.schema, self._upgraded, known=settings.served)
        self._lock = threading.Lock()
        self._state = DatabaseHealth()  # guarded by _lock
        self._uses = frozenset[str]()
        self.needs(())

    def ask(self) -> None:
        """The main process wants to hear when the database can be reached."""
        with self._lock:
            self._state.ask()

    def doubt(self) -> None:
        """A statement failed as if the database were away."""
        with self._lock:
            self._state.doubt()

    def needs(self, uses: Collection[str]) -> None:
        """The app uses these of the journal beside what all do: whether it may is tried."""
        results = (Use.RESULTS,) if self._settings.results_topic else ()
        self._uses = frozenset((*uses, *results))
        self.doubt()

    @property
    def up(self) -> bool:
        """The last try reached it, and the journal can be used."""
        return self._state.up and not self.blocked

    @property
    def sure(self) -> bool:
        """As `up`, and nobody has asked or doubted since."""
        return self._state.sure and not self.blocked

    def pause(self, now: float) -> float | None:
        """Seconds until the next try; 0 when it is due, None while none is wanted."""
        with self._lock:
            return self._state.pause(now)

    def attempt(self) -> None:
        """Tries the database and says what came of it. Raises ChannelClosed."""
        try:
            with self._connection.busy():
                self._reach()
        except (psycopg.Error, OSError) as error:
            self._failed(_in_words(error), turned_away=is_turned_away(error))
        except JournalError as error:  # it was there: it may be put back
            self._failed(str(error), "missing")
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 - it may go well the next time
            self._log.exception("trying the database failed")
            self._failed(repr(error))

    def _reach(self) -> None:
        known = self._connection.connected
        try:
            self._probe()
        except (psycopg.Error, OSError):
            if not known:
                raise
            # The connection that there was may be all that was lost, or lead to a server that
            # another one has taken over from.
            self._connection.close()
            self._probe()
        with self._lock:
            news = self._state.succeeded()
        if self.blocked:
            return
        self._health.database(up=True, detail="answers")
        if news and self.said_ready:
            self._reporting.tell(DatabaseState(up=True, detail="answers"))
        self._say_ready("ok", "")

    def _probe(self) -> None:
        """Raises psycopg.Error, JournalError unless the database can be worked with."""
        connection = self._connection.open()
        if not self._schema_checked:
            # Where an instance goes on nothing is migrated: that is for one that starts.
            (self._journal.check if self._settings.served else self._check_schema)(connection)
            self._schema_checked = True
        if self.blocked:
            return
        self._health.uses_journal(journal_identity(connection, schema=self._settings.schema))
        schema, uses = self._settings.schema, self._uses
        if (refused := refused_work(connection, schema=schema, uses=uses)) is not None:
            self._journal.check(connection)  # a table that is gone tells more
            said = _in_words(refused)
            said = said if is_unfit(refused) else f"it takes no writes: {said}"
            raise psycopg.OperationalError(said) from refused

    def _check_schema(self, connection: Connection) -> None:
        schema = self._settings.schema
        try:
            if self._settings.migrate:
                self._connection.take_your_time()
                applied = migrate(self._settings.database_url, schema)
                self._log.info("journal migrated", schema=schema, applied=applied)
            self._journal.check(connection)
        except (OncepoolError, psycopg.Error) as error:
            if isinstance(error, psycopg.OperationalError) or outage_of(error, connected=True):
                raise
            self.blocked = True
            verdict = "too_new" if isinstance(error, SchemaTooNew) else "missing"
            detail = _in_words(error)
            self._health.database(up=False, detail=detail)
            if self.said_ready:
                self._reporting.tell(JournalUnusable(detail))
            self._say_ready(verdict, detail)

    def _upgraded(self, error: SchemaTooNew) -> None:
        """Housekeeping goes on all the same, as workers do."""
        self._log.warning(
            "a newer version has upgraded the journal: housekeeping goes on with it until this"
            " instance is replaced", detail=str(error),
        )  # fmt: skip

    def _failed(
        self, detail: str, verdict: str = "unreachable", *, turned_away: bool = False
    ) -> None:
        self._connection.close()
        with self._lock:
            news = self._state.failed(time.monotonic(), turned_away=turned_away)
        self._health.database(up=False, detail=detail)
        if news and self.said_ready:
            self._log.warning("database away", detail=detail)
            self._reporting.tell(DatabaseState(False, detail, turned_away))
        self._say_ready(verdict, detail)

    def _say_ready(self, schema: str, detail: str) -> None:
        if not self.said_ready:
            self.said_ready = True
            self._reporting.tell(MaintenanceReady(schema, detail))


def _in_words(error: Exception) -> str:
    said = one_line(error)
    lacks = isinstance(error, psycopg.errors.InsufficientPrivilege)
    return f"{said}; look at the rights of its user" if lacks else said
