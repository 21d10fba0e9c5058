"""Fixtures of all tests.

The services are real. They start when the first test asks for them, are shared by all tests of the
run (also by the workers of pytest-xdist), and are gone afterwards. What a test puts into them has a
name of its own: `topic()`, `schema`, `prefix`.
"""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import settings

from stack import Stack
from tests.support import run
from tests.support.commands import Commands
from tests.support.journal import Journal
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy
from tests.support.schema_pool import SchemaPool
from tests.support.waiting_rows import WaitingRows

pytest_plugins = ["tests.support.coverage"]

# Else each of the many processes looks through all installed distributions for plugins of
# pydantic's, of which there are none: a tenth of what a worker takes to start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

TopicFactory = Callable[..., str]

_started_here = pytest.StashKey[bool]()


# Other processes share the machine: how long an example takes says nothing. For more of them:
# scripts/test --hypothesis-profile=thorough tests/unit tests/model
settings.register_profile("oncepool", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("oncepool")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background of a shell ignores it, and children would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_started_here] = run.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_started_here, False):
        run.end()


@pytest.fixture
def terminal() -> Iterator[None]:
    """SIGHUP is heard, here and in processes that are started: `nohup scripts/test` ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """What is made meanwhile stays to the end: looking for garbage in it is in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stacks that are started and ended take long, so they come first: else all wait for them."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/contract/stack/"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetches what a first run has to fetch here, where no test's time-out runs.

    What there is by now stays to the end: collections of garbage, which some tests ask for, need
    not look at it.
    """
    gc.freeze()
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if wanted & {"stack", "own_stack"} and not session.config.option.collectonly:
        run.fetch()


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Kafka (one broker), PostgreSQL and Valkey, shared by the run.

    Under pytest-xdist other tests run beside it: one that stops, kills or pauses a service asks for
    `own_stack`.
    """
    return run.stack_of_run()


@pytest.fixture(autouse=True)
def _whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in {"stack", "own_stack"} & set(request.fixturenames):
        _heal(request.getfixturevalue(name))


def _heal(stack: Stack) -> None:
    if any(service.state() != "running" for service in stack.services):
        stack.heal()


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack that no test uses at the same time: one may break it as it likes.

    Each file has its own. After a test it is made whole, not made anew.
    """
    made = run.own_stack(f"own-{uuid.uuid4().hex[:8]}")
    yield made
    made.down(delete=True)


@pytest.fixture
def topic(stack: Stack) -> Iterator[TopicFactory]:
    """Makes topics that nobody else uses: ``topic(partitions=1, name="orders")`` -> name."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    made: list[str] = []

    def make(partitions: int = 1, name: str = "test", **config: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:12]}"
        wanted = NewTopic(topic, num_partitions=partitions, config=config)
        admin.create_topics([wanted])[topic].result(30)
        made.append(topic)
        return topic

    yield make
    _heal(stack)
    if made:
        for deleted in admin.delete_topics(made).values():
            deleted.result(30)


@pytest.fixture
def group() -> str:
    """A consumer group that nobody else uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def prefix() -> str:
    """A Redis prefix that nobody else uses; its keys have a time to live."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def empty_schema(stack: Stack) -> Iterator[str]:
    """The name of a journal schema that nobody else uses, and that does not exist yet."""
    import psycopg
    from psycopg import sql

    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    _heal(stack)
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(drop)


@pytest.fixture
def new_schema(stack: Stack, empty_schema: str) -> str:
    """A journal schema that nobody has used before, with the journal's tables."""
    from feedback.journal.migrations import migrate

    migrate(stack.database, empty_schema)
    return empty_schema


@pytest.fixture
def schema(new_schema: str) -> str:
    """A journal schema that nobody else uses, with the journal's tables."""
    return new_schema


@pytest.fixture(scope="session")
def schema_pool(stack: Stack) -> Iterator[SchemaPool]:
    """The schemas of `pooled_schema`."""
    made = SchemaPool(stack.database)
    yield made
    _heal(stack)
    made.close()


@pytest.fixture
def pooled_schema(stack: Stack, schema_pool: SchemaPool) -> Iterator[str]:
    """As `schema`, emptied after another test: a fifth of the CPU.

    For tests that start no processes. Where these are `schema` has to be this one.
    """
    name = schema_pool.take()
    yield name
    _heal(stack)
    schema_pool.give_back(name)


@pytest.fixture
def journal(stack: Stack, schema: str) -> Iterator[Journal]:
    """The journal's tables, to write rows into and to look at."""
    made = Journal(stack.database, schema)
    yield made
    made.close()


@pytest.fixture
def own_database(stack: Stack) -> Iterator[OwnDatabase]:
    """A database of the test's own: it may end its connections and change its settings."""
    with OwnDatabase(stack.database) as made:
        yield made


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Proxy]:
    """Stands before PostgreSQL, for those who connect by `through`."""
    with Proxy.of(stack.database) as made:
        yield made


@pytest.fixture
def through(stack: Stack, proxy: Proxy) -> str:
    """The database's URL through the test's `proxy`."""
    return proxy.before(stack.database)


@pytest.fixture
def rows(stack: Stack, schema: str) -> Iterator[WaitingRows]:
    """Rows of the waiting queue."""
    made = WaitingRows(stack.database, schema)
    yield made
    made.close()


@pytest.fixture
def oncepool(
    stack: Stack, schema: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    """Commands in this process, in an empty folder, on the test's journal and statuses."""
    monkeypatch.chdir(tmp_path)
    return Commands(stack, schema, prefix)
