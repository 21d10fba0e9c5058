from __future__ import annotations

import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from consumer import cli
from consumer.config.gateway_keys import GatewayKey, hash_of
from consumer.config.key_file import add_key
from consumer.config.loader import load_settings
from consumer.errors import ConfigError
from consumer.gateway.access import Access, Caller
from consumer.gateway.problems import HttpProblem
from tests.support.gateway import KEY, key

OTHER = "another-key-of-forty-characters-for-test"


def status(call: Any, *arguments: Any) -> int:
    with pytest.raises(HttpProblem) as raised:
        call(*arguments)
    return raised.value.status_code


def test_a_caller_is_known_by_his_key() -> None:
    access = Access({"shop": key("send"), "ops": key("operate", token=OTHER)}, rate=0)
    assert not access.open
    assert access.caller([f"Bearer {KEY}"]).name == "shop"
    assert access.caller([f"bearer  {OTHER}"]).roles == {"operate"}


@pytest.mark.parametrize(
    "headers",
    [[], [""], ["Bearer"], [f"Basic {KEY}"], ["Bearer short"], [f"Bearer {KEY}x"], [KEY],
     [f"Bearer {KEY}", f"Bearer {KEY}"], [f"Bearer {hash_of(KEY)}"], ["Bearer ÿ" + "a" * 40]],
)  # fmt: skip
def test_who_has_no_key_is_not_let_in(headers: list[str]) -> None:
    access = Access({"shop": key("send")}, rate=0)
    with pytest.raises(HttpProblem) as raised:
        access.caller(headers)
    assert raised.value.status_code == 401
    assert "Bearer" in dict(raised.value.headers or {})["WWW-Authenticate"]


def test_without_keys_anybody_near_may_do_all() -> None:
    access = Access({}, rate=0)
    assert access.open
    caller = access.caller([])
    caller.need("operate")
    caller.need_type("any")


def test_roles_and_types_are_held_to() -> None:
    caller = Caller("shop", frozenset({"send"}), ("payment.*", "order"))
    caller.need("send")
    caller.need_type("payment.create")
    caller.need_own("k", "order")
    assert status(caller.need, "operate") == 403
    assert status(caller.need_type, "orders") == 403
    assert status(caller.need_own, "k", "invoice") == 404
    assert not caller.may_see(None)
    assert not caller.sees_all


def test_each_key_has_a_rate_of_its_own() -> None:
    now = 0.0
    keys = {"shop": key("send", rate=1), "ops": key("operate", token=OTHER)}
    access = Access(keys, rate=0, clock=lambda: now)
    calls = [f"Bearer {KEY}"]
    access.caller(calls)
    access.caller(calls)
    assert status(access.caller, calls) == 429
    assert access.caller([f"Bearer {OTHER}"]).name == "ops"
    now = 1.0
    access.caller(calls)


def test_a_new_key_opens_the_gateway_that_has_its_table(tmp_path: Path) -> None:
    made = CliRunner().invoke(
        cli.app, ["gateway", "--new-key", "shop", "--role", "send", "--type", "payment.*"]
    )
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert tomllib.loads(made.stderr)
    (tmp_path / "oncepool.toml").write_text(made.stderr)
    settings = load_settings(environ={}, folder=tmp_path)
    caller = Access(settings.gateway_keys, 0).caller([f"Bearer {token}"])
    assert (caller.name, caller.roles, caller.types) == ("shop", {"send"}, ("payment.*",))
    assert "sha256" not in repr(settings)
    assert CliRunner().invoke(cli.app, ["gateway", "--new-key", "a b"]).exit_code == 2


@pytest.mark.parametrize("option", ["--role", "--type", "--write"])
def test_options_of_a_new_key_start_no_gateway(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.gateway.serve", lambda _: pytest.fail("it serves"))
    given = CliRunner().invoke(cli.app, ["gateway", option, "read"])
    assert given.exit_code == 2
    assert f"{option} goes with --new-key" in given.output


def _write_key(file: Path, name: str) -> Result:
    return CliRunner().invoke(cli.app, ["gateway", "--new-key", name, "--write", str(file)])


def test_of_keys_that_are_added_at_once_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "oncepool.toml"
    names = [f"key{n}" for n in range(8)]
    together = Barrier(len(names))

    def add(name: str) -> None:
        together.wait(60)
        add_key(file, name, GatewayKey(hash=hash_of(name * 16), roles=["send"]))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(add, names))
    assert sorted(tomllib.loads(file.read_text())["gateway"]["keys"]) == names


def test_a_new_key_is_written_into_the_file_that_it_is_for(tmp_path: Path) -> None:
    file = tmp_path / "oncepool.toml"
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    assert _write_key(file, "shop").exit_code == 0
    file.write_text(f"workers = 3\n[gateway]\nrate = 9  # enough\n{file.read_text()}".rstrip())
    file.chmod(0o640)

    made = _write_key(link, "ops")

    assert made.exit_code == 0, made.output
    assert "of all types" in made.stderr
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert "rate = 9  # enough" in file.read_text()
    settings = load_settings(environ={}, config=file)
    assert (settings.workers, list(settings.gateway_keys)) == (3, ["shop", "ops"])
    caller = Access(settings.gateway_keys, 0).caller([f"Bearer {made.stdout.strip()}"])
    assert caller.name == "ops"
    assert sorted(tmp_path.iterdir()) == [link, file]


@pytest.mark.parametrize(
    "text,said",
    [
        (f"[gateway.keys.shop]\nhash = '{hash_of(KEY)}'\nroles = ['send']\n", "is a key 'shop'"),
        ("workers = \n", "this is not TOML"),
        ("worker = 3\n", "did you mean workers"),
        (f"[gateway]\nkeys = {{ops = {{hash = '{hash_of(KEY)}'}}}}\n", "does not go with the keys"),
        ("gateway_keys = '{}'\n", "given twice"),
    ],
)
def test_a_file_that_a_new_key_does_not_fit_into_stays_as_it_is(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "oncepool.toml"
    file.write_text(text)
    made = _write_key(file, "shop")
    assert (made.exit_code, made.stdout) == (1, "")
    assert said in made.stderr.replace("\n", " ")
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "keys,said",
    [
        ("{", "this is not JSON"),
        ('{"a b": {"hash": "x", "roles": ["send"]}}', "sha256"),
        ('{"a": {"hash": "HASH", "roles": ["fly"]}}', "'send', 'read' or 'operate'"),
        ('{"a": {"hash": "HASH", "roles": []}}', "at least 1"),
        ('{"a": {"hash": "HASH", "roles": ["send"], "x": 1}}', "a.x: there is no such option"),
        ('{"a b": {"hash": "HASH", "roles": ["send"]}}', "no key's name"),
        ('{"a": {"hash": "HASH", "roles": ["send"]}, "b": {"hash": "HASH", "roles": ["send"]}}',
         "two names"),
    ],
)  # fmt: skip
def test_keys_that_can_not_stand_are_refused(keys: str, said: str) -> None:
    text = keys.replace("HASH", hash_of(KEY))
    with pytest.raises(ConfigError, match=said) as raised:
        load_settings(environ={"ONCEPOOL_GATEWAY_KEYS": text}, folder=Path("/nonexistent"))
    assert hash_of(KEY) not in str(raised.value)


def test_a_key_may_have_the_name_of_callers_without_one_and_keeps_its_rate() -> None:
    access = Access({"local": key("send", rate=1)}, rate=1000, clock=lambda: 0.0)
    for _ in range(2):
        access.caller([f"Bearer {KEY}"])
    assert status(access.caller, [f"Bearer {KEY}"]) == 429
