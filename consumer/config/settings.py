"""Every setting: its name, type, default and meaning, and what it must be by itself.

`Settings(...)` itself reads nothing, so that code and tests can make one from values alone;
`loader.load_settings` reads arguments > environment > oncepool.toml > defaults and remembers where
each value came from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    ByteSize,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from consumer.config.database_url import check_database_url
from consumer.config.gateway_keys import GatewayKeys
from consumer.config.masking import mask
from consumer.config.setting_types import (
    Properties,
    Routes,
    Seconds,
    SecondsByType,
    SecondsOrZero,
    Senders,
    Servers,
    Topic,
    Topics,
    Types,
)
from consumer.config.validation import wrong_combinations
from consumer.errors import ConfigError
from feedback.outbox.names import DEFAULT_SCHEMA, SCHEMA_PATTERN
from feedback.status.opening import check_url
from processing.settings import CHECK_AFTER, LOCK_TIMEOUT, MAX_IN_HAND

MIB = 1024 * 1024
PREFIX = "ONCEPOOL_"
DEFAULT = "default"


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Settings(BaseSettings):
    """Settings that are right one by one and together.

    Their names are those that the environment and the file use too.
    """

    # The docstring below a field is its meaning in help texts and docs/configuration.md.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", validate_default=False)

    app: str = Field("")
    """The App with the handlers, as module:attribute."""
    workers: int = Field(default_factory=_processors, ge=1, le=1024)
    """Worker processes, and one more while one is replaced; without it as many as this process may
    use CPUs."""
    ordering: Literal["key", "partition", "none"] = Field("key")
    """What never runs side by side: requests with one key, of one partition, or nothing."""
    max_in_hand: int = Field(MAX_IN_HAND, ge=1)
    """Requests that are committed and not finished, at most; with 1 messages wait behind rows."""
    max_in_hand_bytes: ByteSize = Field(ByteSize(64 * MIB), ge=1)
    """The same bound in bytes of keys, values and headers; the last request may go beyond it."""
    max_payload: ByteSize = Field(ByteSize(MIB), ge=1)
    """Larger payloads are rejected/invalid_payload without being read."""
    request_timeout: Seconds = Field(300.0)
    """Seconds one run may take where its handler names no timeout."""
    grace: Seconds = Field(30.0)
    """Seconds from the signal to the end; at 90 % of them what runs is asked to give up, then it is
    killed. What has not started is the next owner's."""

    kafka_bootstrap_servers: Servers = Field("")
    """Kafka brokers, host:port, comma separated."""
    kafka_topics: Topics = Field(default_factory=list)
    """Topics to consume, comma separated."""
    kafka_topic: Topic = Field("")
    """Topic that requests are sent to; without it the first of kafka_topics."""
    kafka_group: str = Field("oncepool", min_length=1)
    """Consumer group."""
    kafka_results_topic: Topic = Field("")
    """Topic that gets a record of each settled request; without it none are kept."""
    kafka_protocol: Literal["auto", "consumer", "classic"] = Field("auto")
    """Group protocol: consumer is KIP-848; auto takes it where the broker has it."""
    kafka_assignor: Literal["range", "cooperative-sticky"] = Field("cooperative-sticky")
    """How the classic protocol spreads partitions."""
    kafka_session_timeout: Seconds = Field(45.0)
    """Seconds without a heartbeat after which the classic protocol takes a member for dead; with
    KIP-848 the broker decides."""
    kafka_max_poll_interval: Seconds = Field(300.0)
    """Seconds without a poll after which a member leaves the group by itself."""
    kafka_properties: Properties = Field(default_factory=dict)
    """Further librdkafka properties: table kafka.properties, or a JSON object, which takes the
    place of the whole table."""
    auto_offset_reset: Literal["earliest", "latest", "error"] = Field("earliest")
    """Where a group without a committed offset begins; latest loses what was sent before, error
    stops the instance."""
    read_again: bool = Field(True)
    """What an instance that died or left had committed and not finished is read again by the next
    owner of the partition; off: it is lost, or parked in the journal."""
    topic_partitions: int = Field(12, ge=1, le=10_000)
    """Partitions of topics that `oncepool topics create` makes."""
    topic_replication: int = Field(-1, ge=-1, le=100)
    """Replicas of such topics; -1 is the broker's default."""

    database_url: str = Field("")
    """PostgreSQL of the journal, postgresql://..."""
    database_schema: str = Field("oncepool", pattern="^[a-z_][a-z0-9_]{0,62}$")
    """Schema of the journal's tables."""
    database_prepare: bool = Field(True)
    """Prepared statements; turn off behind a proxy that pools transactions."""
    database_lock_timeout: Seconds = Field(LOCK_TIMEOUT)
    """Seconds a worker's statement waits for another transaction's lock."""
    database_statement_timeout: SecondsOrZero = Field(0.0)
    """Seconds one statement may take; 0 leaves it to the request's deadline."""
    lease: Seconds = Field(60.0, ge=3)
    """Seconds a claim of a request with external effects lives without renewal, which comes after a
    third of them, at most 15 s; then the request is in_doubt. Claims of waiting rows live 60 s."""
    sweep_interval: Seconds = Field(10.0)
    """Seconds between two looks for claims whose lease has run out."""
    check_after: Seconds = Field(CHECK_AFTER)
    """Seconds after which a request in doubt is asked about, where its handler has a check; each
    time they double, up to an hour."""
    migrate_on_start: bool = Field(False)
    """Create or upgrade the journal when an instance starts."""

    results_duplicates: bool = Field(False)
    """A result record, with code duplicate, also for each answered resend."""

    outbox_database_url: str = Field("")
    """PostgreSQL of a producer's outbox, postgresql://..."""
    outbox_schema: str = Field(DEFAULT_SCHEMA, pattern=SCHEMA_PATTERN)
    """Schema of the outbox's tables."""
    outbox_senders: Senders = Field(default_factory=list)
    """Names that requests may give as their sender, beside default, comma separated."""
    outbox_routes: Routes = Field(default_factory=dict)
    """Where the relay sends the requests of a sender: tables outbox.routes.NAME with topic,
    bootstrap_servers, properties, redis_url, redis_prefix and results_topic, or a JSON object of
    such; what one lacks is as for clients."""
    outbox_resend_after: Seconds = Field(60.0)
    """Seconds without news of a request after which it is sent again; each time they double."""
    outbox_resend_after_by_type: SecondsByType = Field(default_factory=dict)
    """The same for single types, whose runs take longer: a table, or a JSON object."""
    outbox_max_sends: int = Field(8, ge=1, le=1000)
    """Sends without news after which a request is unanswered, and waits for somebody."""
    outbox_inbox: bool = Field(False)
    """The end of each request is also written into the outbox's table inbox, for the producer."""

    redis_url: str = Field("")
    """Redis or Valkey of the statuses, redis://..."""
    redis_prefix: str = Field("oncepool", pattern=r"^[^\s]{1,100}$")
    """What every key and channel begins with, before a colon."""

    worker_start_timeout: Seconds = Field(60.0)
    """Seconds that a worker may take to import the app and run its start hooks."""
    worker_max_requests: int = Field(0, ge=0)
    """Requests after which a worker is replaced; 0 never."""
    worker_max_rss: ByteSize = Field(ByteSize(0))
    """Resident memory above which a worker is replaced, at least 64MiB; 0 never."""
    worker_memory_limit: ByteSize = Field(ByteSize(0))
    """Data a worker may allocate before MemoryError; 0 no limit."""

    health_host: str = Field("127.0.0.1", min_length=1)
    """Address of /livez, /readyz and /metrics."""
    health_port: int | None = Field(None, ge=0, le=65535)
    """Port of /livez, /readyz and /metrics; without it they are off."""
    gateway_host: str = Field("127.0.0.1", min_length=1)
    """Address of the gateway; without gateway_keys only one of this machine."""
    gateway_port: int = Field(8080, ge=0, le=65535)
    """Port of the gateway; 0 takes a free one."""
    gateway_root_path: str = Field("", pattern="^(/[A-Za-z0-9._~-]+)*$")
    """What a proxy before the gateway takes off the front of its paths, as /oncepool: letters and
    digits of ASCII, - . _ ~ and /."""
    gateway_keys: GatewayKeys = Field(default_factory=dict)
    """API keys: tables gateway.keys.NAME with hash, roles, types, rate, or a JSON object; oncepool
    gateway --new-key makes one."""
    gateway_require_key: bool = Field(False)
    """Requests without an Idempotency-Key are refused."""
    gateway_outbox: bool = Field(False)
    """Requests are written into the outbox of outbox_database_url, rather than sent."""
    gateway_uncompared: Types = Field(default_factory=list)
    """Types whose payloads the gateway does not compare, comma separated: those whose handlers
    declare a fingerprint of their own."""
    gateway_max_wait: SecondsOrZero = Field(60.0, le=3600)
    """Longest wait for an answer that a client may ask for, in seconds; a longer one is cut."""
    gateway_max_waits: int = Field(1000, ge=0)
    """Waits at once; who comes on top is answered without waiting."""
    gateway_max_connections: int = Field(2000, ge=1)
    """Connections at once; further ones get 503."""
    gateway_send_timeout: Seconds = Field(10.0, le=300)
    """Seconds in which the brokers have to confirm a request, or the client gets 503."""
    gateway_client_timeout: Seconds = Field(30.0)
    """Seconds in which a client has to send a whole request, and to take its answer."""
    gateway_rate: SecondsOrZero = Field(0.0)
    """Calls a second of one API key, with bursts of twice as many; 0 no limit."""
    gateway_pages: bool = Field(True)
    """Pages for people, below /ui; off: the gateway is for programs alone."""
    gateway_session_secret: str = Field("", pattern="^(.{32,})?$")
    """What logins to the pages are signed with, 32 characters or more, the same for all gateways of
    one address; without it each process makes its own, and a login ends with it."""
    gateway_session_time: Seconds = Field(43200.0)
    """Seconds after which somebody has to log in to the pages again."""
    gateway_masked_fields: Types = Field(
        default_factory=lambda: [
            *("password", "secret", "token", "authorization", "api_key", "card", "card_number"),
            *("cvc", "cvv", "iban", "pin", "ssn"),
        ]
    )
    """Fields of payloads, results and headers whose values pages hide, comma separated, in any
    case, wherever they stand."""
    gateway_trace_url: str = Field("", pattern="^(https?://.*[{]trace_id[}].*)?$")
    """Where a request's trace is to be seen, with {trace_id} for its id."""
    log_format: Literal["auto", "console", "json"] = Field("auto")
    """Log lines: auto is console in a terminal and json otherwise."""
    log_level: Literal["debug", "info", "warning", "error"] = Field("info")
    """Lowest level that is logged."""
    tracing: bool = Field(False)
    """Spans of what is sent, run and written, by OpenTelemetry; OTEL_* says where they go."""

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the given values: `load_settings` reads the other sources."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator(
        "kafka_bootstrap_servers", "kafka_group", "health_host", "gateway_host", mode="before"
    )
    @classmethod
    def _strip(cls, value: object) -> object:
        return value.strip() if isinstance(value, str) else value

    @field_validator(
        "log_level", "log_format", "ordering", "kafka_protocol", "kafka_assignor",
        "auto_offset_reset", mode="before",
    )  # fmt: skip
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("app")
    @classmethod
    def _is_attribute(cls, value: str) -> str:
        module, _, attribute = value.partition(":")
        if value and not (module and attribute):
            raise ValueError(f"add the App's name to the module, as {module or 'module'}:app")
        if ":" in attribute or any(map(str.isspace, value)):
            raise ValueError(f"this is not module:attribute, as {module.strip()}:app")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """True is a number in Python, and so in pydantic."""
        if (
            isinstance(value, bool)
            and cls.model_fields[str(info.field_name)].annotation is not bool
        ):
            raise ValueError("true and false are no values of it")
        return value

    @field_validator("database_url", "outbox_database_url")
    @classmethod
    def _is_postgresql(cls, value: str) -> str:
        if value:
            check_database_url(value)
        return value

    @field_validator("redis_url")
    @classmethod
    def _is_status_store(cls, value: str) -> str:
        if value:
            check_url(value)
        return value

    @property
    def send_topic(self) -> str:
        """The topic that requests are sent to; empty where none is configured."""
        return self.kafka_topic or (self.kafka_topics[0] if self.kafka_topics else "")

    @property
    def outbox_sender_names(self) -> list[str]:
        """The names of senders that are configured, beside `default`."""
        return list(dict.fromkeys([*self.outbox_senders, *self.outbox_routes]))

    @property
    def all_topics(self) -> list[str]:
        """The topics of requests, and those of clients and result records where they are named."""
        named = (*self.kafka_topics, self.kafka_topic, self.kafka_results_topic)
        return list(dict.fromkeys(filter(None, named)))

    @model_validator(mode="after")
    def _combinations(self) -> Settings:
        for problem in wrong_combinations(self):
            raise ValueError(problem)
        return self

    def source(self, name: str) -> str:
        """Where the value of setting `name` came from."""
        if name in self._sources:
            return self._sources[name]
        return "given" if name in self.model_fields_set else DEFAULT

    def remember(self, sources: Mapping[str, str]) -> Settings:
        """Notes where each value came from, and returns these settings."""
        self._sources = dict(sources)
        return self

    def shown(self, name: str) -> Any:
        """The value of setting `name` with its secrets masked."""
        return mask(name, getattr(self, name))

    def require(self, *names: str) -> None:
        """Raises ConfigError naming each of `names` that is not set."""
        missing = [name for name in names if getattr(self, name) in ("", [])]
        if missing:
            ways = "; ".join(f"{n}: set {variable(n)} or {n} in oncepool.toml" for n in missing)
            raise ConfigError(f"needed and not set: {ways}")

    def __repr_args__(self) -> Any:
        """Names and values for repr(), secrets masked."""
        return [(name, self.shown(name)) for name in type(self).model_fields]


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
