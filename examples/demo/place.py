"""Where a demo plays: services, and names in them that nobody else uses."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

import stack
from examples.demo.program import DemoFailed
from examples.shop.card_service import CardService
from examples.shop.storefront import create_storefront
from examples.shop.tables import create_tables
from feedback.journal.migrations import migrate
from stack.external import given

PARTITIONS = 8
SESSION = 6
"""Seconds until the group takes a killed consumer for dead; the default is 45."""
BROKER = {
    "group.consumer.min.session.timeout.ms": f"{SESSION}000",
    "group.consumer.session.timeout.ms": f"{SESSION}000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
SCHEMA = "oncepool"
KAFKA_TIMEOUT = 30.0
LOST_REPLIES = 0.02
"""Share of the charges that the card service makes and does not answer."""
CARD_DELAY = 0.002

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoPlace:
    """The services' addresses, and the names of this run."""

    name: str
    """Of topic, group, database and prefix in Redis."""
    kafka: str
    database: str
    storefront: str
    """Database of the shop's other side, which knows nothing of the consumers'."""
    redis: str
    cards: str
    charges: Path
    """The card service's record."""
    folder: Path
    own_broker: bool

    def clients(self) -> dict[str, str]:
        """What whoever sends requests has to know."""
        return {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": self.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self.name,
            "ONCEPOOL_REDIS_URL": self.redis,
            "ONCEPOOL_REDIS_PREFIX": self.name,
            "ONCEPOOL_LOG_FORMAT": "json",
        }

    def environment(self) -> dict[str, str]:
        """What a consumer has to know."""
        settings = {
            **self.clients(),
            "ONCEPOOL_KAFKA_GROUP": self.name,
            "ONCEPOOL_DATABASE_URL": self.database,
            # Claims that a killed consumer leaves are in doubt as soon as may be.
            "ONCEPOOL_LEASE": "5",
            "ONCEPOOL_SWEEP_INTERVAL": "1",
            "SHOP_CARDS_URL": self.cards,
        }
        if not self.own_broker:
            # The broker decides how long a KIP-848 session is; in a classic group, we do.
            settings |= {
                "ONCEPOOL_KAFKA_PROTOCOL": "classic",
                "ONCEPOOL_KAFKA_SESSION_TIMEOUT": str(SESSION),
            }
        return settings

    def keep(self) -> Path:
        """Copies the logs and the card service's record to a folder that stays."""
        kept = Path(tempfile.gettempdir(), f"oncepool-{self.name}")
        kept.mkdir()
        for file in (*self.folder.glob("*.log"), self.charges):
            shutil.copy(file, kept)
        return kept


@contextmanager
def prepared(tell: Tell) -> Iterator[DemoPlace]:
    """A place with topic, journal, the shop's tables and the card service; gone afterwards.

    Plays on the services that the environment names, else on a stack that is up, else on one of
    its own. Raises StackError, DemoFailed.
    """
    name = f"demo_{secrets.token_hex(4)}"
    with ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="oncepool-demo-"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)  # PostgreSQL does not run as root and has to enter it
        services, own_broker = _services(folder / "stack", tell, cleanup)
        charges = folder / "charges.jsonl"
        cards = cleanup.enter_context(
            CardService(charges, lose_replies=LOST_REPLIES, delay=CARD_DELAY)
        )
        try:
            database = _make_database(services.database, name, cleanup)
            migrate(database, SCHEMA)
            create_tables(database)
            storefront = _make_database(services.database, f"{name}_storefront", cleanup)
            with psycopg.connect(storefront, autocommit=True) as connection:
                create_storefront(connection)
            _make_topic(services.kafka, name, cleanup)
        except (KafkaException, psycopg.Error) as error:
            raise DemoFailed(f"topic and tables could not be made: {error}") from error
        yield DemoPlace(
            name=name, kafka=services.kafka, database=database, storefront=storefront,
            redis=services.redis, cards=cards.url, charges=charges, folder=folder,
            own_broker=own_broker,
        )  # fmt: skip


def _services(data: Path, tell: Tell, cleanup: ExitStack) -> tuple[stack.Stack, bool]:
    """The services, and whether the broker was started for this run."""
    found = None if given(data) else stack.find()
    if found is not None and all(s.state in ("running", "external") for s in found.status()):
        tell(f"on the stack that is up in {found.data}")
        return found, False
    services = stack.up(
        data,
        broker_properties=BROKER,
        owner=os.getpid(),
        disposable=True,
        watch=lambda progress: tell(f"{progress.service}: {progress.doing}"),
    )
    cleanup.callback(services.down, delete=True)
    return services, "kafka" not in services.external


def _make_database(server: str, name: str, cleanup: ExitStack) -> str:
    """A database of this run's own; its address."""
    identifier = sql.Identifier(name)

    def drop() -> None:
        with suppress(psycopg.Error), psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    cleanup.callback(drop)
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def _make_topic(kafka: str, name: str, cleanup: ExitStack) -> None:
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 3})

    def delete() -> None:
        with suppress(KafkaException):
            admin.delete_topics([name])[name].result(KAFKA_TIMEOUT)

    topic = NewTopic(name, num_partitions=PARTITIONS)
    admin.create_topics([topic])[name].result(KAFKA_TIMEOUT)
    cleanup.callback(delete)
