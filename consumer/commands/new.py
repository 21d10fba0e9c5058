"""``oncepool new``: a small project that runs, with its tests."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from consumer.commands.output import print_json
from consumer.errors import ConsumerError

app = typer.Typer()

PLACES = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "oncepool.toml": "oncepool.toml",
    "app.py": "{package}/app.py",
    "place.py": "{package}/place.py",
    "schema.sql": "{package}/schema.sql",
    "test_app.py": "tests/test_app.py",
}
"""Template -> its place in the project."""
OURS = frozenset({"consumer", "processing", "feedback", "stack", "oncepool", "tests", "test"})
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_LONGEST = 50
"""With `oncepool_` before it, it is the name of a schema: PostgreSQL takes 63 characters."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ProjectRefused(ConsumerError):
    """A project can't be made there, or not under that name."""


@app.command()
def new(
    *,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Where; its last part is the project's name."),
    ],
    json: Annotated[
        bool, typer.Option("--json", envvar="ONCEPOOL_JSON", help="Print the files as JSON.")
    ] = False,
) -> None:
    """Make a small project that runs: handlers, a producer, settings, and tests of all that.

    The folder must be empty or not there yet.
    """
    name = folder.resolve().name
    package = _package(name)
    texts = _texts(name, package)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectRefused(
            f"{folder} is there already, and nothing of it was changed: name"
            " another folder, or empty it"
        )
    for place, text in texts.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if json:
        print_json({"folder": str(folder), "files": list(texts)})
        return
    for place in texts:
        typer.echo(f"{folder / place}")
    typer.echo(f"\nNext: cd {folder} and follow README.md", err=True)


def _package(name: str) -> str:
    """The package of a project of that name. Raises ProjectRefused."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ProjectRefused(
            f"{name!r} is no name for a project: a small letter first, then small letters and"
            f" digits, with single - or _ between them; at most {_LONGEST} characters"
        )
    package = name.replace("-", "_")
    taken = keyword.iskeyword(package) or package in sys.stdlib_module_names or package in OURS
    if taken or package in needed_modules():
        raise ProjectRefused(f"{name!r} is the name of a module that it would hide: take another")
    return package


def needed_modules() -> set[str]:
    """What Oncepool imports of others, directly or not: names of distributions and their modules.

    With all of Oncepool's extras, whether they are installed or not.
    """
    needed: set[str] = set()
    open_ = ["oncepool"]
    while open_:
        distribution = open_.pop()
        if distribution in needed:
            continue
        needed.add(distribution)
        try:
            requirements = metadata.requires(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            found = _REQUIREMENT.match(requirement)
            if found and (distribution == "oncepool" or "extra ==" not in requirement):
                open_.append(_plain(found[0]))
    modules = metadata.packages_distributions().items()
    return needed | {m for m, those in modules if any(_plain(one) in needed for one in those)}


def _plain(distribution: str) -> str:
    """Its name as a module would be written."""
    return re.sub(r"[-_.]+", "_", distribution).lower()


def _texts(name: str, package: str) -> dict[str, str]:
    """Place in the project -> text."""
    folder = files("consumer.commands") / "project"
    texts = {f"{package}/__init__.py": "", ".gitignore": ".venv/\n__pycache__/\n"}
    for template, place in PLACES.items():
        text = (folder / f"{template}.tmpl").read_text("utf-8")
        texts[place.format(package=package)] = text.replace("NAME", name).replace(
            "PACKAGE", package
        )
    return texts
