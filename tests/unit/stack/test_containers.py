"""Containers, with an engine that only remembers what it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docker
import pytest
from testcontainers.core import container as testcontainers_container

from stack import ServiceFailed, Stack, StackError, find, up
from stack import containers as stack_containers


class FakeContainer:
    def __init__(self, engine: FakeEngine, name: str, made: dict[str, Any]) -> None:
        self.engine = engine
        self.name = name
        self.made = made
        self.status = "running"

    def start(self) -> None:
        self.status = "running"

    def stop(self, timeout: int) -> None:
        assert self.status == "running", "a paused container cannot be stopped"
        self.status = "exited"

    def kill(self) -> None:
        self.status = "exited"

    def pause(self) -> None:
        self.status = "paused"

    def unpause(self) -> None:
        self.status = "running"

    def remove(self, force: bool, v: bool) -> None:
        del self.engine.all[self.name]

    def logs(self, tail: int) -> bytes:
        return b"one\ntwo\n"


class FakeEngine:
    def __init__(self) -> None:
        self.all: dict[str, FakeContainer] = {}
        self.containers = self

    def get(self, name: str) -> FakeContainer:
        if name not in self.all:
            raise docker.errors.NotFound(name)
        return self.all[name]

    def __call__(self, image: str, env: dict[str, str], name: str) -> FakeDockerContainer:
        return FakeDockerContainer(self, {"image": image, "env": env}, name)


class FakeDockerContainer:
    def __init__(self, engine: FakeEngine, made: dict[str, Any], name: str) -> None:
        self.engine, self.made, self.name = engine, made, name

    def with_command(self, command: list[str]) -> FakeDockerContainer:
        self.made["command"] = command
        return self

    def with_kwargs(self, **options: Any) -> FakeDockerContainer:
        self.made.update(options)
        return self

    def start(self) -> None:
        self.engine.all[self.name] = FakeContainer(self.engine, self.name, self.made)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    made = FakeEngine()
    monkeypatch.setenv("ONCEPOOL_STACK", "docker")
    monkeypatch.setattr(docker, "from_env", lambda: made)
    monkeypatch.setattr(testcontainers_container, "DockerContainer", made)
    for check in ("broker_is_in", "database_is_there", "redis_answers"):
        monkeypatch.setattr(stack_containers, check, lambda *_: True)
    return made


def states(stack: Stack) -> list[str]:
    return [service.state for service in stack.status()]


def test_services_in_containers(engine: FakeEngine, tmp_path: Path) -> None:
    stack = up(tmp_path, 3)
    by_name = {name.split("-", 2)[2]: c.made for name, c in engine.all.items()}
    assert sorted(by_name) == ["kafka-1", "kafka-2", "kafka-3", "postgres", "valkey"]
    assert {made["network_mode"] for made in by_name.values()} == {"host"}
    assert by_name["kafka-2"]["image"] == "apache/kafka:4.3.1"
    assert by_name["kafka-2"]["env"]["KAFKA_NODE_ID"] == "2"
    port = stack.database.split(":")[-1].split("/")[0]
    assert f"--port={port}" in by_name["postgres"]["command"]
    assert f":{by_name['postgres']['env']['POSTGRES_PASSWORD']}@" in stack.database
    assert states(stack) == ["running"] * 5

    assert up(tmp_path).kafka == stack.kafka
    stack.pause_database()
    stack.stop_broker(2, kill=True)
    stack.stop_redis()
    assert states(stack) == ["paused", "stopped", "running", "stopped", "running"]
    stack.heal()
    assert states(stack) == ["running"] * 5

    stack.pause_redis()
    stack.down()
    assert find(tmp_path) is None
    assert len(engine.all) == 5
    assert up(tmp_path).running
    stack.down(delete=True)
    assert engine.all == {}
    assert not tmp_path.exists()


def test_a_container_that_ends_shows_its_log(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> bool:
        next(c for name, c in engine.all.items() if name.endswith("valkey")).kill()
        return False

    monkeypatch.setattr(stack_containers, "redis_answers", dies)
    with pytest.raises(ServiceFailed, match="its container ended") as error:
        up(tmp_path)
    assert error.value.lines == ["one", "two"]
    assert "running" not in {c.status for c in engine.all.values()}


def test_the_kind_of_a_folder_stays(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(tmp_path)
    monkeypatch.delenv("ONCEPOOL_STACK")
    with pytest.raises(StackError, match="of kind docker, and ONCEPOOL_STACK asks for embedded"):
        up(tmp_path)


def test_no_engine_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine() -> None:
        raise docker.errors.DockerException("no such file")

    monkeypatch.setenv("ONCEPOOL_STACK", "docker")
    monkeypatch.setattr(docker, "from_env", no_engine)
    with pytest.raises(StackError, match="no Docker engine answers: no such file"):
        up(tmp_path)
