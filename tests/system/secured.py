"""Everything under TLS and SASL, on services of its own: `scripts/secured`.

For each way to authenticate to Kafka (SCRAM, PLAIN, client certificates): commands, a consumer with
result records, a relay, a gateway, and a client of the environment; what has a wrong password, or
does not know who signed the certificates, is refused. Consumer, relay and gateway are told a
NOTIFY_SOCKET.

PostgreSQL and Valkey of the local stack are built without TLS: here proxies speak it for them. That
shows that what URLs say of TLS reaches each connection, no more. Kafka's is its own.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import psycopg
import redis
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import stack
from feedback import Client, outbox
from feedback.client.results import Results
from stack.places import free_port
from tests.support.waiting import eventually

WAIT: Final = 120.0
SECRET: Final = "correct horse"
APP: Final = """
from processing import App
app = App()
@app.handler("echo")
def echo(payload: dict) -> dict:
    return payload
"""


def say(text: str) -> None:
    """To whoever started this."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def certificates(folder: Path) -> None:
    """A CA that signs a server and a client; `other.pem` has signed nobody."""
    subject = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    for name in ("ca", "other", "server", "client"):
        signed = [] if name in {"ca", "other"} else ["-CA", "ca.pem", "-CAkey", "ca.key"]
        made = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"]
        extension = ["-addext", subject] if name == "server" else []
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             *made, *signed, *extension],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    both = (folder / "server.key").read_text() + (folder / "server.pem").read_text()
    (folder / "server-both.pem").write_text(both)


def broker_properties(folder: Path, sasl: int, mutual: int) -> dict[str, str]:
    """Beside the plain listener one with SASL, and one that asks clients for certificates."""
    found = {
        "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
        f"SASL://127.0.0.1:{sasl},MUTUAL://127.0.0.1:{mutual}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:{port},"
        f"SASL://localhost:{sasl},MUTUAL://localhost:{mutual}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_shop="{SECRET}";'
        ),
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(folder / "ca.pem"),
    }
    for name in ("sasl", "mutual"):
        found[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{name}.ssl.keystore.location"] = str(folder / "server-both.pem")
    return found


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Hands on what comes, until one of them ends."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def behind_tls(port: int, folder: Path, *, asks: bytes = b"", answer: bytes = b"") -> int:
    """The port of a proxy that speaks TLS for a server; `asks` is said in plain before."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), plain:
            if plain.recv(len(asks)) != asks:
                return
            plain.sendall(answer)
            client = context.wrap_socket(plain, server_side=True)
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            pump(client, server)

    def accept() -> None:
        while True:
            plain, _ = listener.accept()
            threading.Thread(target=serve, args=(plain,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def secure_valkey(url: str, folder: Path) -> str:
    """Gives it a user with a password, and its port TLS; the URL."""
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~*", "&*", "+@all")
        client.execute_command("ACL", "SETUSER", "default", "resetpass", "off")
    port = behind_tls(int(url.rpartition(":")[2].partition("/")[0]), folder)
    return f"rediss://shop:{quote(SECRET)}@localhost:{port}/0"


def secure_database(url: str, folder: Path) -> str:
    """Gives its port TLS, asked for as libpq does; the URL."""
    known = psycopg.conninfo.conninfo_to_dict(url)
    asked = bytes.fromhex("0000000804d2162f")  # SSLRequest
    port = behind_tls(int(str(known["port"])), folder, asks=asked, answer=b"S")
    user = f"{known['user']}:{known['password']}"
    return f"postgresql://{user}@localhost:{port}/{known['dbname']}?sslmode=verify-full"


def hears(manager: socket.socket, message: str) -> None:
    """Waits until a service manager is told it. Raises TimeoutError."""
    heard = b""
    while not heard.startswith(message.encode()):
        heard = manager.recv(4096)


class Way:
    """One way to reach the services, and what is seen on it."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._folder = folder
        self.environment = environment

    def told(self, *arguments: str, wrong: bool = False, **other: str) -> str:
        """What a command prints. Fails where its exit code is not as it should be."""
        ended = subprocess.run(
            [sys.executable, "-m", "consumer", *arguments],
            cwd=self._folder, env={**os.environ, **self.environment, **other},
            capture_output=True, text=True, timeout=WAIT, check=False,
        )  # fmt: skip
        said = ended.stdout + ended.stderr
        assert SECRET not in said, f"{self.name}: a password is shown"
        assert (ended.returncode != 0) is wrong, f"{self.name}: {arguments}: {said}"
        return ended.stdout

    def wrong(self, service: str, **other: str) -> str:
        """What `oncepool check` says of the service that is wrong."""
        checks = json.loads(self.told("check", "--json", wrong=True, **other))["checks"]
        (found,) = (one for one in checks if one["state"] == "wrong")
        assert found["check"] == service, found
        assert "no answer" not in found["detail"], found
        return f"{service}: {found['detail']}"

    @contextmanager
    def running(self, *arguments: str) -> Iterator[socket.socket]:
        """A program, from what it tells a service manager first to its end."""
        path = self._folder / f"{self.name}-{arguments[0]}.sock"
        log = self._folder / f"{self.name}-{arguments[0]}.log"
        notify = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "2000000"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, log.open("wb") as file:
            manager.bind(str(path))
            manager.settimeout(WAIT)
            process = subprocess.Popen(
                [sys.executable, "-m", "consumer", *arguments], cwd=self._folder,
                env={**os.environ, **self.environment, **notify}, stderr=file,
            )  # fmt: skip
            try:
                hears(manager, "READY=1")
                yield manager
                process.terminate()
                hears(manager, "STOPPING=1")
                assert process.wait(WAIT) == 0, log.read_text()
            finally:
                process.kill()
                process.wait(WAIT)
        assert SECRET not in log.read_text(), f"{self.name}: a password is in the log"

    def tried(self) -> None:
        """Fails where something does not work under it."""
        self.told("check", ONCEPOOL_APP="app:app")
        with self.running("run") as consumer, self.running("relay"), self.running("gateway"):
            self._ask_the_gateway()
            sent = json.loads(self.told("send", "echo", '{"n": 1}', "--wait", "60", "--json"))
            assert "done" in json.dumps(sent), sent
            with Client.from_env(self.environment) as client:
                results = client.results(f"reader-{self.name}", from_beginning=True)
                assert client.call("echo", {"n": 2}, timeout=60).result == {"n": 2}
                with psycopg.connect(self.environment["ONCEPOOL_DATABASE_URL"]) as connection:
                    written = outbox.add(connection, "echo", {"n": 3})
                with results:
                    ids: set[str] = set()
                    eventually(lambda: self._ended(results, ids, written), WAIT, lambda: str(ids))
            hears(consumer, "WATCHDOG=1")
            self.told("stats", "--json")

    def _ask_the_gateway(self) -> None:
        """It sends, reads Redis and the journal, and says that it reaches all three."""
        root = f"http://127.0.0.1:{self.environment['ONCEPOOL_GATEWAY_PORT']}"
        with httpx.Client(base_url=root, timeout=WAIT) as http:
            headers = {"Idempotency-Key": f"{self.name}-http", "Prefer": "wait=60"}
            sent = http.post("/requests/echo", json={"n": 4}, headers=headers)
            assert (sent.status_code, sent.json()["result"]) == (200, {"n": 4}), sent.text
            ready = http.get("/readyz?verbose")
            assert ready.status_code == 200, ready.text
            checks = {one["name"]: one["ok"] for one in ready.json()["checks"]}
            assert len(checks) >= 3, ready.text
            assert all(checks.values()), ready.text
            with redis_of(self.environment) as store:
                store.delete(f"oncepool:status:{self.name}-http")
            told = http.get(f"/requests/{self.name}-http")
            assert (told.status_code, told.json()["state"]) == (200, "done"), told.text

    @staticmethod
    def _ended(results: Results, ids: set[str], wanted: str) -> bool:
        if one := results.poll(1.0):
            ids.add(one.id)
        return wanted in ids


def redis_of(environment: dict[str, str]) -> redis.Redis:
    """As programs reach it."""
    client: redis.Redis = redis.Redis.from_url(environment["ONCEPOOL_REDIS_URL"])
    return client


def ways(folder: Path, services: stack.Stack, sasl: int, mutual: int, gateway: int) -> list[Way]:
    """The three that have to work; their topics are their own."""
    login = {"sasl.username": "shop", "sasl.password": SECRET}
    known = {"ssl.ca.location": str(folder / "ca.pem")}
    mine = {
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key"),
    }
    protocol = "security.protocol"
    kinds: dict[str, tuple[int, dict[str, str]]] = {
        "scram": (sasl, {protocol: "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **login}),
        "plain": (sasl, {protocol: "SASL_SSL", "sasl.mechanism": "PLAIN", **login}),
        "certificates": (mutual, {protocol: "SSL", **mine}),
    }
    valkey = secure_valkey(services.redis, folder)
    database = secure_database(services.database, folder)
    return [
        Way(name, folder, {
            "ONCEPOOL_APP": "app:app",
            "ONCEPOOL_WORKERS": "1",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"localhost:{port}",
            "ONCEPOOL_KAFKA_TOPICS": name,
            "ONCEPOOL_KAFKA_RESULTS_TOPIC": f"{name}-results",
            "ONCEPOOL_KAFKA_GROUP": name,
            "ONCEPOOL_TOPIC_PARTITIONS": "2",
            "ONCEPOOL_KAFKA_PROPERTIES": json.dumps({**properties, **known}),
            "ONCEPOOL_REDIS_URL": f"{valkey}?ssl_ca_certs={folder / 'ca.pem'}",
            "ONCEPOOL_DATABASE_URL": f"{database}&sslrootcert={folder / 'ca.pem'}",
            "ONCEPOOL_GATEWAY_PORT": str(gateway),
            "ONCEPOOL_OUTBOX_DATABASE_URL": f"{database}&sslrootcert={folder / 'ca.pem'}",
        })
        for name, (port, properties) in kinds.items()
    ]  # fmt: skip


def refused(way: Way) -> None:
    """Fails where somebody gets in who should not, or is not told why not."""
    properties = json.loads(way.environment["ONCEPOOL_KAFKA_PROPERTIES"])
    other = str(Path(properties["ssl.ca.location"]).with_name("other.pem"))
    changes = {
        "wrong password": {"sasl.password": "wrong"},
        "unknown CA": {"ssl.ca.location": other},
    }
    for name, changed in changes.items():
        given = json.dumps(properties | changed)
        say(f"{name}: {way.wrong('kafka', ONCEPOOL_KAFKA_PROPERTIES=given)}")
    for service in ("redis", "database"):
        variable = f"ONCEPOOL_{service.upper()}_URL"
        url = way.environment[variable].replace("ca.pem", "other.pem")
        say(f"unknown CA: {way.wrong(service, **{variable: url})}")


def main() -> None:
    """Plays all of it; an AssertionError says what does not work."""
    with ExitStack() as end:
        folder = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="oncepool-secured-")))
        certificates(folder)
        (folder / "app.py").write_text(APP)
        taken: set[int] = set()
        sasl, mutual = free_port(taken), free_port(taken)
        services = stack.up(
            folder / "stack",
            broker_properties=broker_properties(folder, sasl, mutual),
            owner=os.getpid(),
            disposable=True,
        )
        end.callback(services.down)
        admin = AdminClient({"bootstrap.servers": services.kafka})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("shop", scram, SECRET.encode())
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result(30)
        del admin  # it would complain of the broker's end
        found = ways(folder, services, sasl, mutual, free_port(taken))
        found[0].told("migrate")
        found[0].told("outbox", "migrate")
        for way in found:
            way.told("topics", "create")
            way.tried()
            say(f"{way.name}: works")
        refused(found[0])
    say("all of it works under TLS and SASL")


if __name__ == "__main__":
    main()
