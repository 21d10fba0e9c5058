from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.config.librdkafka import FORBIDDEN
from consumer.config.loader import load_settings
from consumer.config.masking import mask_url
from consumer.config.meanings import meaning
from consumer.config.property_twins import TWINS
from consumer.config.reference import reference
from consumer.config.settings import Settings, variable
from consumer.errors import ConfigError
from feedback.client import settings as client_settings

ROOT = Path(__file__).parents[4]


def load(
    arguments: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    toml: str | None = None,
    folder: Path | None = None,
) -> Settings:
    if toml is not None and folder is not None:
        (folder / "oncepool.toml").write_text(toml)
    return load_settings(arguments, environ=environ or {}, folder=folder or Path("/nonexistent"))


def test_arguments_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    toml = 'workers = 3\ngrace = 7\n[kafka]\ngroup = "of-the-file"\n'
    environ = {"ONCEPOOL_WORKERS": "4", "ONCEPOOL_GRACE": "8"}

    settings = load({"workers": "5"}, environ, toml, tmp_path)

    assert (settings.workers, settings.grace, settings.kafka_group) == (5, 8.0, "of-the-file")
    assert settings.ordering == "key"
    assert settings.source("workers") == "argument"
    assert settings.source("grace") == "environment ONCEPOOL_GRACE"
    assert settings.source("kafka_group") == str(tmp_path / "oncepool.toml")
    assert settings.source("ordering") == "default"


def test_an_argument_that_is_none_was_not_given() -> None:
    settings = load({"workers": None}, {"ONCEPOOL_WORKERS": "4"})

    assert settings.workers == 4


def test_the_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "oncepool.toml").write_text("workers = 1")
    (tmp_path / "other.toml").write_text("workers = 2")
    (tmp_path / "third.toml").write_text("workers = 3")
    environ = {"ONCEPOOL_CONFIG": str(tmp_path / "other.toml")}

    def workers(environ: dict[str, str], config: Path | None = None) -> int:
        return load_settings(environ=environ, config=config, folder=tmp_path).workers

    assert workers({}) == 1
    assert workers(environ) == 2
    assert workers(environ, tmp_path / "third.toml") == 3


def test_a_named_file_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: the configuration file can't be read"):
        load_settings(environ={}, config=tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("workers = = 2")
    with pytest.raises(ConfigError, match=r"bad\.toml: this is not TOML: .*line 1"):
        load_settings(environ={}, config=tmp_path / "bad.toml")


def test_tables_are_flattened(tmp_path: Path) -> None:
    toml = """
    [kafka]
    topics = ["a", "b"]
    [kafka.properties]
    client.id = "shop"
    "socket.keepalive.enable" = true
    [database]
    url = "postgresql://h/db"
    [worker]
    max_rss = "200MiB"
    [outbox.routes.billing]
    topic = "bills"
    [outbox.routes.billing.properties]
    linger.ms = 20
    """

    settings = load(toml=toml, folder=tmp_path)

    assert settings.kafka_topics == ["a", "b"]
    assert settings.kafka_properties == {"client.id": "shop", "socket.keepalive.enable": True}
    assert settings.database_url == "postgresql://h/db"
    assert settings.worker_max_rss == 200 * 2**20
    assert settings.outbox_routes["billing"].topic == "bills"
    assert settings.outbox_routes["billing"].properties == {"linger.ms": 20}
    assert settings.outbox_sender_names == ["billing"]


@pytest.mark.parametrize(
    "toml,message",
    [
        ("worker = 3", "worker: there is no such setting; did you mean workers?"),
        ("[kafka]\ntopic_names = 3", "kafka.topic_names: .* did you mean kafka_topic"),
        ("workers = true", "workers = True .*true and false are no values of it"),
        ("grace = false", "grace = False .*true and false are no values of it"),
        ("max_payload = true", "max_payload = True .*true and false are no values of it"),
        ("health_port = true", "health_port = True .*true and false are no values of it"),
        ("read_again = 7", "read_again = 7 .*boolean"),
        ("[zzzzqqq]\na = 3", r"zzzzqqq: there is no such setting; remove it"),
        ('kafka_group = "a"\n[kafka]\ngroup = "b"', "kafka_group is given twice"),
    ],
)
def test_unknown_names_and_values_in_the_file_are_refused(
    tmp_path: Path, toml: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(toml=toml, folder=tmp_path)


def test_unknown_variables_are_refused_with_the_nearest() -> None:
    for name, meant in (
        ("ONCEPOOL_WORKER", "; did you mean ONCEPOOL_WORKERS?"),
        ("ONCEPOOL_DB_URL", "; did you mean ONCEPOOL_DATABASE_URL?"),
        ("ONCEPOOL_TOPICS", "; did you mean ONCEPOOL_KAFKA_TOPICS?"),
        ("ONCEPOOL_MAXINHAND", "; did you mean ONCEPOOL_MAX_IN_HAND?"),
        ("ONCEPOOL_REDIS_ULR", "; did you mean ONCEPOOL_REDIS_URL?"),
        ("ONCEPOOL_KAFKA_BROKERS", ""),  # neither servers nor the brokers of `oncepool stack`
    ):
        with pytest.raises(ConfigError) as caught:
            load(environ={name: "3"})
        said = f"environment variable {name}: there is no such setting{meant}; unset it or"
        assert str(caught.value).startswith(said)


def test_unknown_arguments_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"argument worker: .* did you mean workers"):
        load({"worker": 3})


@pytest.mark.parametrize(
    "name", ["ONCEPOOL_STACK", "ONCEPOOL_STACK_DATA", "ONCEPOOL_JSON", "ONCEPOOL_TEST_X", "PATH"]
)
def test_variables_of_other_parts_are_left_alone(name: str) -> None:
    load(environ={name: "x"})


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(environ={"ONCEPOOL_HEALTH_PORT": ""}).health_port is None


@pytest.mark.parametrize(
    "name,value,message",
    [
        ("workers", "0", r"workers = '0' \(from environment ONCEPOOL_WORKERS\): .*greater"),
        ("workers", "many", "workers = 'many' .*integer"),
        ("grace", "0", "grace = '0' .*greater than 0"),
        ("grace", "-1", "grace = '-1' .*greater than 0"),
        ("grace", "inf", "grace = 'inf' .*finite"),
        ("lease", "1e15", "lease = '1e15' .*less than or equal to"),
        ("max_in_hand", "0", "max_in_hand = '0' .*greater than or equal to 1"),
        ("ordering", "random", "'key', 'partition' or 'none'"),
        ("kafka_topics", "a,a", "a is named twice"),
        ("kafka_topics", "a,^b.*", "'\\^b.\\*' is no topic's name"),
        ("kafka_topic", "a/b", "'a/b' is no topic's name"),
        ("kafka_results_topic", "..", "is no topic's name"),
        ("kafka_properties", "{", "not JSON"),
        ("kafka_properties", '{"a": [1]}', "a has to be text, a number or a boolean"),
        ("kafka_properties", "[1]", "dictionary"),
        ("outbox_routes", "{", "not JSON"),
        ("outbox_routes", '{"a b": {}}', "no sender's name"),
        ("outbox_routes", '{"a": {"topics": "t"}}', r"a\.topics: .* did you mean topic\?"),
        (
            "gateway_keys",
            '{"shop": {"rats": 5}}',
            r"shop\.rats: .*; did you mean rate\?",
        ),
        ("gateway_keys", '{"shop": {"hash": "x"}}', r"shop\.roles: Field required"),
        ("app", "shop", "add the App's name to the module, as shop:app"),
        ("app", ":app", "as module:app"),
        ("app", "shop:a:b", "not module:attribute"),
        ("app", "shop: app", "not module:attribute"),
        ("database_schema", 'x"; DROP', "should match pattern"),
        ("database_url", "mysql://h/db", "neither postgresql://"),
        ("database_url", "postgresql://u:p%ss@h/db", r"'postgresql://u:\*\*\*@h/db' .* as %25"),
        ("database_url", "postgresql+psycopg://u:p@h/d?a=b", "neither postgresql://"),
        ("kafka_bootstrap_servers", "http://h:1", "'http://h:1' is no server's address"),
        ("kafka_bootstrap_servers", ":9092", "write host:port,host:port"),
        ("outbox_routes", '{"a": {"bootstrap_servers": "a;b"}}', "'a;b' is no server's address"),
        ("redis_url", "http://h", "none of redis://"),
        ("redis_url", "redis://:hidden@h:99999", r":\*\*\*@h:99999. .*look at host and port"),
        ("redis_url", "redis://a..b", "'a..b' is no name of a host"),
        ("redis_url", "redis://h/prod", "path has to be the number of a database, as in redis://h"),
        ("redis_url", "rediss://h/1/2", "path has to be the number of a database"),
        ("redis_url", "redis://h/0?db=one", "option db has to be a number, not 'one'"),
        ("redis_url", "redis://h/0?decode_responses=1", "there is no option decode_responses"),
        ("max_payload", "lots", "max_payload = 'lots'"),
    ],
)
def test_value_errors_say_setting_value_source_and_what_is_allowed(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(environ={variable(name): value})


@pytest.mark.parametrize(
    "text",
    [
        '[outbox.routes.b]\nredis_ulr = "redis://u:hidden@h"',
        '[outbox.routes.b.propertis]\nsasl.password = "hidden"',
        '[outbox.routes.b.properties]\nsasl.password = "hidden"\nfoo = [1]',
        '[outbox]\nroutes = ["redis://u:hidden@h"]',
        '[kafka.properties]\nsasl.password = "hidden"\nfoo = [1]',
        '[kafka]\nproperties = ["sasl.password=hidden"]',
        '[gateway]\nsession_secret = ["hidden"]',
        'database_url = ["postgresql://u:hidden@h"]',
    ],
)
def test_what_is_wrong_in_a_file_is_told_without_its_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(toml=text, folder=tmp_path)
    assert "hidden" not in str(caught.value)


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"ONCEPOOL_WORKERS": "0", "ONCEPOOL_GRACE": "x"})

    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    "property, value, setting, taken",
    [
        ("session.timeout.ms", 6000, "kafka_session_timeout", 6.0),
        ("max.poll.interval.ms", "20000", "kafka_max_poll_interval", 20.0),
        ("auto.offset.reset", "latest", "auto_offset_reset", "latest"),
        ("group.id", "g", "kafka_group", "g"),
        ("group.protocol", "classic", "kafka_protocol", "classic"),
        ("partition.assignment.strategy", "range", "kafka_assignor", "range"),
        ("bootstrap.servers", "b:1", "kafka_bootstrap_servers", "b:1"),
        ("metadata.broker.list", "b:1", "kafka_bootstrap_servers", "b:1"),
    ],
)
def test_a_property_that_a_setting_stands_for_is_that_setting(
    property: str, value: Any, setting: str, taken: Any, tmp_path: Path
) -> None:
    for name in (property, json.dumps(property)):  # unquoted TOML makes a table of it
        given = f"[kafka.properties]\nclient.id = 'c'\n{name} = {json.dumps(value)}\n"
        settings = load(toml=given, folder=tmp_path)
        assert getattr(settings, setting) == taken
    assert settings.kafka_properties == {"client.id": "c"}
    assert settings.source(setting) == f"{tmp_path}/oncepool.toml, kafka_properties {property}"
    said = json.dumps({property: value})
    assert getattr(load(environ={"ONCEPOOL_KAFKA_PROPERTIES": said}), setting) == taken


def test_a_property_and_its_setting_may_say_the_same_and_nothing_else(tmp_path: Path) -> None:
    given = '[kafka.properties]\n"session.timeout.ms" = 6000\n[kafka]\nsession_timeout = '
    assert load(toml=given + "6", folder=tmp_path).kafka_session_timeout == 6
    with pytest.raises(ConfigError, match=r"session.timeout.ms = 6000 .*kafka_session_timeout"):
        load(toml=given + "7", folder=tmp_path)
    with pytest.raises(ConfigError, match=r"auto_offset_reset = 'never' .*kafka_properties"):
        load({"kafka_properties": {"auto.offset.reset": "never"}})


def test_of_two_sources_the_one_that_counts_more_says_it_by_either_name(tmp_path: Path) -> None:
    by_property = {"ONCEPOOL_KAFKA_PROPERTIES": '{"group.id": "b"}'}
    assert (
        load(toml='[kafka]\ngroup = "a"\n', folder=tmp_path, environ=by_property).kafka_group == "b"
    )
    by_name = {"ONCEPOOL_KAFKA_GROUP": "b"}
    toml = '[kafka.properties]\n"group.id" = "a"\n'
    assert load(toml=toml, folder=tmp_path, environ=by_name).kafka_group == "b"


@pytest.mark.parametrize("value", ["soon", 6000.9, True, float("inf"), 10**400, -1, None])
def test_milliseconds_are_whole(value: Any) -> None:
    with pytest.raises(ConfigError, match="it wants whole milliseconds"):
        load({"kafka_properties": {"max.poll.interval.ms": value}})


def test_clients_leave_out_what_stands_for_a_consumers_settings() -> None:
    assert {*client_settings.BROKERS, *client_settings.OF_CONSUMERS} == {*TWINS}


@pytest.mark.parametrize("rest", ["", "/", "/3", "/3/", "//3", "/%33", "/prod?db=3"])
def test_a_path_that_the_redis_client_reads_as_a_database_is_taken(rest: str) -> None:
    url = f"redis://h{rest}"
    assert load(environ={"ONCEPOOL_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("name", FORBIDDEN)
def test_properties_that_the_protocol_owns_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"kafka_properties": {name: "x"}})

    assert f"{name} can't be set: {FORBIDDEN[name]}" in str(caught.value)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (
            {"kafka_properties": {"heartbeat.interval.ms": 1}, "kafka_protocol": "consumer"},
            'heartbeat.interval.ms can.t be set: the broker .* kafka_protocol is "consumer"',
        ),
        (
            {"kafka_properties": {"group.remote.assignor": "x"}, "kafka_protocol": "classic"},
            "group.remote.assignor can't be set: the classic protocol",
        ),
        (
            {"kafka_protocol": "consumer", "kafka_assignor": "range"},
            "kafka_assignor has no meaning .* the broker assigns",
        ),
        (
            {"kafka_protocol": "consumer", "kafka_session_timeout": 10},
            "kafka_session_timeout has no meaning",
        ),
        (
            {"outbox_routes": {"a": {"properties": {"bootstrap.servers": "x"}}}},
            "outbox_routes: bootstrap.servers of a can't be set",
        ),
        ({"max_payload": 11, "max_in_hand_bytes": 10}, "such request is beyond the bound"),
        ({"worker_memory_limit": "1MiB"}, "could not even load its libraries"),
        (
            {"worker_memory_limit": "200MiB", "worker_max_rss": "200MiB"},
            "would meet the limit before it is replaced",
        ),
        ({"worker_max_rss": "512"}, r"replaced again and again; raise it \(512MiB\)"),
        ({"kafka_group": " "}, "kafka_group = ' ' .*at least 1 character"),
        ({"health_host": " "}, "health_host = ' ' .*at least 1 character"),
        ({"sweep_interval": 61}, "expired claims would stay unnoticed"),
        (
            {"kafka_topics": "a,b", "kafka_results_topic": "b"},
            "would come back as requests; give it a topic of its own",
        ),
        (
            {"kafka_topic": "c", "kafka_results_topic": "c"},
            "would come back as requests; give it a topic of its own",
        ),
        ({"results_duplicates": True}, "set kafka_results_topic"),
    ],
)
def test_combinations_that_do_not_go_together_are_explained(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(arguments)


def test_blanks_are_not_set_and_names_may_be_in_capitals() -> None:
    settings = load(
        {"kafka_bootstrap_servers": " ", "kafka_assignor": "RANGE", "auto_offset_reset": "Error"}
    )

    with pytest.raises(ConfigError, match="needed and not set: kafka_bootstrap_servers"):
        settings.require("kafka_bootstrap_servers")
    assert (settings.kafka_assignor, settings.auto_offset_reset) == ("range", "error")


def test_classic_properties_are_allowed_with_the_classic_protocol() -> None:
    load({"kafka_protocol": "classic", "kafka_properties": {"heartbeat.interval.ms": 1000}})


SECRETS = {
    "sasl.password": "s1-hidden",
    "ssl.key.password": "s2-hidden",
    "ssl.keystore.password": "s3-hidden",
    "sasl.oauthbearer.client.secret": "s4-hidden",
    "ssl.key.pem": "s5-hidden",
    "sasl.oauthbearer.config": "s6-hidden",
    "sasl.oauthbearer.assertion.private.key.passphrase": "s7-hidden",
}


def test_secrets_are_masked_wherever_a_value_is_shown() -> None:
    settings = load(
        {
            "kafka_properties": {**SECRETS, "sasl.username": "shop"},
            "database_url": "postgresql://shop:s8-hidden@h/db?sslpassword=s9-hidden",
            "redis_url": "redis://:s10-hidden@h/0",
            "outbox_routes": {"a": {"topic": "t", "properties": {"sasl.password": "s11-hidden"}}},
        }
    )

    shown = repr(settings) + str(settings) + "".join(str(settings.shown(n)) for n in FIELDS)
    assert "hidden" not in shown
    assert "shop" in shown
    assert settings.kafka_properties["sasl.password"] == "s1-hidden"


def test_secrets_are_masked_in_errors() -> None:
    environ = {
        "ONCEPOOL_DATABASE_URL": "mysql://shop:hidden@h/db",
        "ONCEPOOL_REDIS_URL": "http://:hidden@h",
        "ONCEPOOL_KAFKA_PROPERTIES": '{"sasl.password": "hidden"',
        "ONCEPOOL_OUTBOX_ROUTES": '{"a": {"properties": {"sasl.password": ["hidden"]}}}',
    }
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)

    assert "hidden" not in str(caught.value)
    assert "shop:***@h" in str(caught.value)


FIELDS = tuple(Settings.model_fields)
# A password in a URL has these encoded.
PLAIN = st.text(
    st.characters(exclude_characters="@/?# \t\r\n'", exclude_categories=("Cs",)), min_size=1
)


@given(password=PLAIN)
def test_no_password_survives_masking(password: str) -> None:
    masked = mask_url(f"postgresql://user:{password}@host:5432/db")

    assert masked == "postgresql://user:***@host:5432/db"


def test_a_libpq_string_is_masked() -> None:
    assert mask_url(r"host=h password=ge\ heim dbname=d") == "host=h password=*** dbname=d"
    assert mask_url("host=h password=ge&heim dbname=d") == "host=h password=*** dbname=d"
    assert mask_url("host=h password=ge heim dbname=d") == "host=h password=*** dbname=d"
    assert mask_url("host=h password='ge heim") == "host=h password=***"
    assert mask_url("redis://h/0?password=x&db=1") == "redis://h/0?password=***&db=1"
    assert mask_url("host=h password='a b' dbname=d") == "host=h password=*** dbname=d"
    hidden = "host=h password=*** dbname=d"
    assert mask_url("host=h password='x://y secret part' dbname=d") == hidden
    assert mask_url(r"host=h password=x://y\ secret dbname=d") == hidden
    assert mask_url("host=h password=ab dbname=d") == "host=h password=*** dbname=d"


@given(
    workers=st.one_of(st.none(), st.integers(1, 1024)),
    in_environment=st.one_of(st.none(), st.integers(1, 1024)),
    in_file=st.one_of(st.none(), st.integers(1, 1024)),
)
def test_the_first_source_that_has_a_value_wins(
    workers: int | None,
    in_environment: int | None,
    in_file: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("config")
    environ = {} if in_environment is None else {"ONCEPOOL_WORKERS": str(in_environment)}
    toml = "" if in_file is None else f"workers = {in_file}"

    settings = load({"workers": workers}, environ, toml, folder)

    given_values = [v for v in (workers, in_environment, in_file) if v is not None]
    if given_values:
        assert settings.workers == given_values[0]
    else:
        assert settings.source("workers") == "default"


def test_what_a_command_needs_is_named_with_its_ways() -> None:
    with pytest.raises(ConfigError, match="database_url: set ONCEPOOL_DATABASE_URL") as caught:
        load().require("database_url", "kafka_topics", "kafka_group")

    assert "kafka_topics" in str(caught.value)
    assert "kafka_group" not in str(caught.value)


def test_requests_are_sent_to_the_first_topic_unless_one_is_named() -> None:
    assert load({"kafka_topics": "a,b"}).send_topic == "a"
    assert load({"kafka_topics": "a,b", "kafka_topic": "c"}).send_topic == "c"
    assert load().send_topic == ""


def test_settings_made_from_values_read_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEPOOL_WORKERS", "77")

    assert Settings(workers=2).workers == 2
    assert Settings().workers != 77


def test_the_reference_page_is_what_the_settings_say() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

    assert page == reference(), "run: python -m consumer.config.reference > docs/configuration.md"
    assert all(f"`{variable(name)}`" in page for name in FIELDS)
    assert all(meaning(name) for name in FIELDS)
