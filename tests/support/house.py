"""Rules for every source file and every page, as functions of a tree that return what breaks them.

The tree is a folder like the project's root, so that a test can give one that breaks a rule.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = ("consumer", "processing", "feedback", "stack", "examples", "benchmarks")
PAGES = ("README.md", "CHANGELOG.md", "docs/*.md", "benchmarks/*.md", "examples/**/*.md")
TEXTS = (*SOURCES, ".ci", "deploy", "docs", "scripts", "tests")

MOST_LINES = 350
MOST_LINES_OF_A_TEST = 500
MOST_LINES_OF_A_FUNCTION = 50

REASON = re.compile(r"^\s*# long: \S", re.MULTILINE)
"""Stands in a file, or in a function, that has a reason to be longer than others."""

MACHINE = re.compile(r"(?<![\w.}/-])/(?:work|root|tmp|home|mnt|Users)/[\w.-]+")
IMAGES = {"Dockerfile", "compose.yaml"}
"""Have paths inside containers."""

FILE = re.compile(r"(?<![\w/.:-])(?:\.\./)*(?:[\w-]+/)*[\w-]+\.(?:py|md|sh|sql|sha256)\b")
FOLDER = re.compile(
    rf"`((?:{'|'.join((*SOURCES, 'deploy', 'tests', 'scripts', 'docs'))})/[\w/.-]*)`"
)


def sources(root: Path, *folders: str) -> Iterator[tuple[str, str]]:
    """Path below the root, and text, of each Python file."""
    for folder in folders or SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text()


class _Definition(NamedTuple):
    """Of a class or a function: the lines, counted from 0, from the first to behind the last."""

    name: str
    is_class: bool
    first: int
    end: int


def _parsed(text: str) -> ast.Module:
    """Its tree. CPython 3.11 counts all threads' recursion as one, and may raise for another's."""
    with contextlib.suppress(SystemError):
        return ast.parse(text)
    return ast.parse(text)


@functools.cache
def _definitions(text: str) -> list[_Definition]:
    return [
        _Definition(
            node.name, isinstance(node, ast.ClassDef), node.lineno - 1, node.end_lineno or 0
        )
        for node in ast.walk(_parsed(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def classes_twice(root: Path) -> dict[str, list[str]]:
    """Class names that stand more than once, with their files."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in sources(root):
        for one in _definitions(text):
            if one.is_class:
                found[one.name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def long_files(root: Path) -> dict[str, int]:
    """Files with more lines than a reader holds in mind, and that say no reason."""
    limits = dict.fromkeys(SOURCES, MOST_LINES) | {"tests": MOST_LINES_OF_A_TEST}
    return {
        path: lines
        for folder, most in limits.items()
        for path, text in sources(root, folder)
        if (lines := len(text.splitlines())) > most and not REASON.search(text)
    }


def long_functions(root: Path) -> dict[str, int]:
    """Functions (``path::name``) that are too long, nested ones counted in, and say no reason."""
    found: dict[str, int] = {}
    for path, text in sources(root):
        lines = text.splitlines()
        for one in _definitions(text):
            own = lines[one.first : one.end]
            long = not one.is_class and len(own) > MOST_LINES_OF_A_FUNCTION
            if long and not REASON.search("\n".join(own)):
                found[f"{path}::{one.name}"] = len(own)
    return found


def missing_files(root: Path) -> dict[str, list[str]]:
    """For each page, the files and folders that it names and that are not there.

    A name may leave out folders before it: ``pool/lanes.py``, or ``lanes.py`` alone.
    """
    inside = [path for folder in TEXTS for path in (root / folder).rglob("*")]
    ends = "".join(f"/{path.relative_to(root).as_posix()}\n" for path in [*inside, *root.glob("*")])
    found: dict[str, list[str]] = {}
    for pattern in PAGES:
        for page in sorted(root.glob(pattern)):
            text = page.read_text()
            named = dict.fromkeys([*FILE.findall(text), *FOLDER.findall(text)])
            missing = [
                name
                for name in named
                if f"/{name.rstrip('/')}\n" not in ends and not (page.parent / name).exists()
            ]
            if missing:
                found[page.relative_to(root).as_posix()] = missing
    return found


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each file that a person wrote."""
    inside = [path for folder in TEXTS for path in (root / folder).rglob("*")]
    for path in sorted([*root.glob("*"), *inside]):
        if path.is_file() and path.name != ".git" and "__pycache__" not in path.parts:
            with contextlib.suppress(UnicodeDecodeError):
                yield path.relative_to(root).as_posix(), path.read_text()


def machine_paths(root: Path) -> dict[str, list[str]]:
    """Absolute paths of some machine, by file."""
    return {
        path: hits
        for path, text in texts(root)
        if path not in IMAGES and (hits := MACHINE.findall(text))
    }


def files_with(word: str, root: Path) -> list[str]:
    """Files that have that word, in whatever case, in their text or name."""
    return [path for path, text in texts(root) if word in text.lower() or word in path.lower()]


MAPPED = ("consumer", "processing", "feedback")
MAP_FOLDER = re.compile(r"^\*\*`([\w/]+)/`\*\*")
MAP_FILE = re.compile(r"^\| `(\w+\.py)` \| \S")


def mapped(page: str) -> list[str]:
    """The files of a file map: folders in bold, each followed by a table of its files."""
    found: list[str] = []
    folder = ""
    for line in page.partition("## File map")[2].splitlines():
        if match := MAP_FOLDER.match(line):
            folder = match[1]
        elif match := MAP_FILE.match(line):
            found.append(f"{folder}/{match[1]}")
    return sorted(found)


def to_map(root: Path) -> list[str]:
    """The files that a file map has to name."""
    return sorted(path for path, _ in sources(root, *MAPPED) if not path.endswith("__init__.py"))
