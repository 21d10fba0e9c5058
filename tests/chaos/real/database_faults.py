"""Faults of PostgreSQL, and of the connections to it."""

from __future__ import annotations

import random
import time

import psycopg

from tests.chaos.real.faults import (
    Lane,
    Scene,
    cut_for,
    cut_once,
    fault,
    paused_for,
    silent_for,
)
from tests.chaos.real.members import until
from tests.chaos.real.place import Place
from tests.chaos.real.storm import storm_of
from tests.support.proxy import says_commit

END = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity
    WHERE datname = 'chaos' AND application_name LIKE 'oncepool%%' AND state {state}
    ORDER BY random() LIMIT %s) chosen
"""


def end_backends(scene: Scene, state: str, most: int) -> int:
    [(ended,)] = scene.place.query(END.format(state=state), [most])
    return int(ended)


@fault(Lane.SERVICE, 4)
def database_backend_ended_idle(scene: Scene, chance: random.Random) -> str:
    return f"{n} of them" if (n := end_backends(scene, "= 'idle'", 1)) else ""


@fault(Lane.SERVICE, 4)
def database_backend_ended_busy(scene: Scene, chance: random.Random) -> str:
    """Inside a transaction, or a statement."""
    ended = 0

    def one() -> bool:
        nonlocal ended
        ended = end_backends(scene, "<> 'idle'", 1)
        return ended > 0

    return "one of them" if until(one, 5) else ""


@fault(Lane.SERVICE)
def database_backends_all_ended(scene: Scene, chance: random.Random) -> str:
    return f"{n} of them" if (n := end_backends(scene, "IS NOT NULL", 1000)) else ""


def started(scene: Scene) -> object:
    return scene.place.query("SELECT pg_postmaster_start_time()")[0][0]


@fault(Lane.SERVICE, 0.7)
def database_restarted(scene: Scene, chance: random.Random) -> str:
    before = started(scene)
    scene.place.stack.stop_database()
    time.sleep(chance.uniform(0, 2))  # how long it is away
    scene.place.stack.start_database()
    return "told to end" if started(scene) != before else ""


@fault(Lane.SERVICE, 0.7)
def database_crashed(scene: Scene, chance: random.Random) -> str:
    before = started(scene)
    scene.place.stack.stop_database(kill=True)
    scene.place.stack.start_database()
    return "killed" if started(scene) != before else ""


LAZY = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "100MB"}
"""Settings with which a server confirms what it has not written yet."""
SEND_AGAIN, TRIES = 5.0, 6
TOLD_SINCE = 20.0
"""Seconds before a promotion from which on producers send again what was answered."""


@fault(Lane.SERVICE, 0)
def database_forgets_commits(scene: Scene, chance: random.Random) -> str:
    """As where a replica is promoted that had not received the last transactions.

    Rows and effects are gone together, while Kafka's offsets and the statuses in Redis stand. The
    remedy is the one of the documents: what was answered in the last seconds is sent again.
    """
    place = scene.place
    for name, value in LAZY.items():
        place.query(f"ALTER SYSTEM SET {name} = '{value}'")
    place.query("SELECT pg_reload_conf()")
    time.sleep(chance.uniform(2, 5))  # what is confirmed meanwhile may be forgotten
    place.stack.stop_database(kill=True)
    time.sleep(0.5)  # statuses that are on their way
    place.stack.start_database()
    for name in LAZY:
        place.query(f"ALTER SYSTEM RESET {name}")
    place.query("SELECT pg_reload_conf()")
    told = scene.producer.told_since(time.time() - TOLD_SINCE)

    def gone() -> list[str]:
        return [str(name) for [name] in place.query(
            f"SELECT id FROM unnest(%s::text[]) AS told (id) WHERE NOT EXISTS (SELECT FROM"
            f" {scene.name}.requests r WHERE r.id = told.id)", [told],
        )]  # fmt: skip

    first = gone()
    scene.producer.doubt(told)
    for _ in range(TRIES):
        if until(lambda: not gone(), SEND_AGAIN):
            break
        scene.producer.doubt(gone())  # the database was not back yet, and refused them
    return f"{len(first)} answered requests had no row" if first else ""


@fault(Lane.SERVICE)
def database_paused(scene: Scene, chance: random.Random) -> str:
    return paused_for(scene, "database", chance.uniform(0.5, 4))


@fault(Lane.SERVICE, 4)
def database_commit_reply_lost(scene: Scene, chance: random.Random) -> str:
    """COMMIT reaches the server and its answer does not come back."""
    wish = scene.place.database_gate.wish(says_commit)
    seen = wish.fulfilled.wait(6)
    scene.place.database_gate.mend()
    return "lost" if seen else ""


@fault(Lane.SERVICE)
def database_connections_cut(scene: Scene, chance: random.Random) -> str:
    return cut_once([scene.place.database_gate])


@fault(Lane.SERVICE)
def database_unreachable(scene: Scene, chance: random.Random) -> str:
    return cut_for([scene.place.database_gate], chance.uniform(0.5, 3))


@fault(Lane.SERVICE)
def database_silent(scene: Scene, chance: random.Random) -> str:
    return silent_for([scene.place.database_gate], chance.uniform(0.5, 4))


@fault(Lane.SERVICE)
def database_slow(scene: Scene, chance: random.Random) -> str:
    gate = scene.place.database_gate
    gate.delay = chance.choice((0.02, 0.1))
    before = gate.passed
    time.sleep(chance.uniform(2, 4))  # how long
    slow, gate.delay = gate.delay, 0.0
    return f"{slow} s each way" if gate.passed > before else ""


@fault(Lane.SERVICE)
def database_read_only(scene: Scene, chance: random.Random) -> str:
    """As after a failover: also for the connections that are there."""
    scene.place.query("ALTER DATABASE chaos SET default_transaction_read_only = on")
    try:
        ended = end_backends(scene, "IS NOT NULL", 1000)
        refused = False
        try:
            scene.place.query(f"INSERT INTO {scene.name}.accounts VALUES (1000, 0)")
        except psycopg.errors.ReadOnlySqlTransaction:
            refused = True
        time.sleep(chance.uniform(1, 4))  # how long
    finally:
        with psycopg.connect(scene.place.database, autocommit=True) as server:
            server.execute("SET default_transaction_read_only = off")
            server.execute("ALTER DATABASE chaos RESET default_transaction_read_only")
        end_backends(scene, "IS NOT NULL", 1000)
    return f"{ended} connections, writes refused" if refused else ""


def has_small_disk(place: Place) -> bool:
    return place.disk.mounted


@fault(Lane.SERVICE, 1, has_small_disk)
def database_disk_full(scene: Scene, chance: random.Random) -> str:
    """Nothing more can be written into tables; seen by a write of our own."""
    place = scene.place
    filled, refused = place.disk.fill(), False

    def full() -> bool:
        try:
            place.query(
                f"INSERT INTO {scene.name}.effects (id, key)"
                " SELECT '', repeat('x', 8000) FROM generate_series(1, 200) WHERE false"
            )
            place.query("CREATE TEMPORARY TABLE filler AS SELECT repeat(md5(g::text), 60) AS x"
                        " FROM generate_series(1, 3000) g")  # fmt: skip
        except psycopg.OperationalError as error:
            # Also of a connection, which wants to write a file.
            return "No space left" in str(error)
        return False

    try:
        refused = until(full, 5)
        time.sleep(chance.uniform(1, 4))  # how long
    finally:
        place.disk.free()
    return f"{filled >> 20} MiB taken, writes refused" if refused else ""


@fault(Lane.SERVICE)
def database_locks_held(scene: Scene, chance: random.Random) -> str:
    """Somebody locks the rows that handlers want, and then the whole table of effects."""
    table = chance.choice(("accounts", "effects"))
    with psycopg.connect(scene.place.database) as holder:
        try:
            holder.execute("SET lock_timeout = '5s'")
            holder.execute(f"LOCK TABLE {scene.name}.{table} IN ACCESS EXCLUSIVE MODE".encode())
        except psycopg.errors.LockNotAvailable:
            return ""
        waiting = until(
            lambda: scene.place.query(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND database ="
                " (SELECT oid FROM pg_database WHERE datname = 'chaos')"
            )[0][0],
            4,
        )
        time.sleep(chance.uniform(0.2, 3))  # how long
        holder.rollback()
    return f"{table}: others waited" if waiting else ""


@fault(Lane.SERVICE)
def database_idle_sessions_ended(scene: Scene, chance: random.Random) -> str:
    """For a while no session outlasts a pause between two chunks, as behind a careless firewall."""
    ended, end = 0, time.monotonic() + chance.uniform(2, 4)  # how long
    while time.monotonic() < end:
        ended += end_backends(scene, "= 'idle'", 1000)
        time.sleep(0.15)
    return f"{ended} sessions" if ended else ""


IDLE = "150ms"


@fault(Lane.SERVICE)
def database_idle_session_timeout(scene: Scene, chance: random.Random) -> str:
    """The server ends whatever session is idle for a moment; they connect anew meanwhile.

    Seen by a session of our own, which is ended, while some of the group's are idle for longer and
    are not: those ask the server to bear them.
    """
    place, told, idle = scene.place, "", False

    def borne() -> int:
        """How many of the group's sessions are idle for longer."""
        [(count,)] = place.query(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'chaos' AND state = 'idle'"
            f" AND application_name LIKE 'oncepool%' AND state_change < now() - interval '{IDLE}'"
        )
        return int(count)

    try:
        place.query(f"ALTER SYSTEM SET idle_session_timeout = '{IDLE}'")
        place.query("SELECT pg_reload_conf()")
        end_backends(scene, "IS NOT NULL", 1000)
        time.sleep(chance.uniform(2, 4))  # how long
        told = end_of_an_idle_session(place)
        idle = until(borne, 3)
    finally:
        place.query("ALTER SYSTEM RESET idle_session_timeout")
        place.query("SELECT pg_reload_conf()")
    return f"{told}; some of the group's are idle for longer" if told and idle else ""


def end_of_an_idle_session(place: Place) -> str:
    """What the server says to a session that does nothing for a second; "" where it lets it be."""
    with psycopg.connect(place.database, autocommit=True, connect_timeout=5) as session:
        session.execute("SELECT 1")
        time.sleep(1)  # it does nothing
        try:
            session.execute("SELECT 1")
        except psycopg.errors.IdleSessionTimeout as error:
            return str(error).partition("\n")[0]
    return ""


def counted(scene: Scene, what: str) -> int:
    """A figure of the server's statistics, since they began."""
    [(count,)] = scene.place.query(f"SELECT {what} FROM pg_stat_database WHERE datname = 'chaos'")
    return int(count)


@fault(Lane.SERVICE)
def database_deadlocks(scene: Scene, chance: random.Random) -> str:
    """Handlers storm a few rows, and lock them in different orders; seen in the server's count."""
    before, waited, storm = counted(scene, "deadlocks"), 0, storm_of(scene.entries)
    end = time.monotonic() + chance.uniform(3, 6)  # how long
    storm.touch()
    try:
        while time.monotonic() < end:
            waited = max(waited, waiting_for_locks(scene))
            time.sleep(0.1)
        # Another fault may hold all handlers up meanwhile.
        seen = until(lambda: counted(scene, "deadlocks") > before, 15)
    finally:
        storm.unlink()
    count = counted(scene, "deadlocks") - before
    return f"{count} deadlocks, {waited} sessions waiting at once" if seen else ""


def waiting_for_locks(scene: Scene) -> int:
    [(waiting,)] = scene.place.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'chaos' AND wait_event_type = 'Lock'"
    )
    return int(waiting)
