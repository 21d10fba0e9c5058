"""Kafka's jars: fetched once, checked against kafka.sha256, kept for all data folders."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

from stack.errors import MissingPackage, StackError
from stack.places import cache_folder
from stack.service import Tell

KAFKA = "org.apache.kafka:kafka_2.13:4.3.1"
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
"""Without it the broker logs nothing. Resolved apart from Kafka, whose versions it would change;
its own is that of Kafka's log4j-core."""

ATTEMPTS = 3
TIMEOUT = 60


def kafka_jars(tell: Tell) -> Path:
    """The folder with exactly the jars that kafka.sha256 names.

    They are fetched into a draft, checked, and moved into place at last, so the folder is whole
    wherever it exists. Two that fetch at once take turns. Raises StackError.
    """
    wanted = expected()
    mark = hashlib.sha256("".join(sorted(wanted.values())).encode()).hexdigest()[:12]
    cache = cache_folder()
    folder = cache / f"kafka-{KAFKA.rsplit(':', 1)[1]}-{mark}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("w") as lock:
        tell("waiting for Kafka's jars")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            tell("fetching Kafka's jars (44 MB, only this once)")
            draft = Path(tempfile.mkdtemp(prefix="draft-", dir=cache))
            try:
                _fetch(draft, cache / "maven", wanted, tell)
                draft.rename(folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return folder


def expected() -> dict[str, str]:
    """File name and SHA-256 of each jar, from kafka.sha256."""
    lines = files("stack").joinpath("kafka.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _fetch(draft: Path, build: Path, wanted: dict[str, str], tell: Tell) -> None:
    """Fills `draft`. What an attempt that failed has fetched is kept for the next one."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            # Kafka's own versions win where both bring a jar.
            found = {**_resolve(LOGGING, build), **_resolve(KAFKA, build)}
            _copy(found, draft, wanted)
        except MissingPackage:
            raise
        except Exception as error:
            if isinstance(error, StackError):
                shutil.rmtree(build)
            if attempt == ATTEMPTS:
                raise StackError(
                    f"Kafka's jars cannot be fetched from Maven Central: {error}"
                ) from error
            tell(f"fetching Kafka's jars again ({error})")
        else:
            shutil.rmtree(build)
            return


def _resolve(endpoint: str, build: Path) -> dict[str, Path]:
    try:
        from jgo.env import EnvironmentBuilder
        from jgo.maven import MavenContext
    except ImportError as error:  # pragma: no cover - an installation without the extra
        raise MissingPackage("jgo", "local") from error
    # A repository of its own: a cut-off file there can be removed, and nobody else's is trusted.
    maven = MavenContext(repo_cache=build / "repository", timeout=TIMEOUT)
    builder = EnvironmentBuilder(context=maven, cache_dir=build)
    return {jar.name: jar for jar in builder.from_endpoint(endpoint).all_jars}


def _copy(found: dict[str, Path], draft: Path, wanted: dict[str, str]) -> None:
    for name, digest in wanted.items():
        if name not in found:
            raise StackError(f"{KAFKA} came without {name}")
        shutil.copyfile(found[name], draft / name)
        if hashlib.sha256((draft / name).read_bytes()).hexdigest() != digest:
            raise StackError(f"{name} is not the file whose SHA-256 is in kafka.sha256")
