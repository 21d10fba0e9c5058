"""A run as it is kept in a folder: what is known of it as a whole, and of each episode."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.real.episode import Outcome
from tests.chaos.real.report import as_json, page

RUN = "run.json"
WITHOUT_END = "episodes without an end"


def keep_known(folder: Path, known: Mapping[str, Any]) -> None:
    """`known`: seed, command, seconds, what took part; with how many episodes came to no end."""
    (folder / RUN).write_text(json.dumps(known, indent=1) + "\n")


def known_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / RUN).read_text()))


def keep_outcome(folder: Path, outcome: Outcome) -> Path:
    """The file that it lies in from now on."""
    file = folder / f"{outcome.plan.name}.pickle"
    file.write_bytes(pickle.dumps(outcome))
    return file


def outcome_in(file: Path) -> Outcome:
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, Outcome)
    return found


def kept_outcomes(folder: Path) -> Iterator[tuple[Path, Outcome]]:
    """One after the other, in the order of the run."""
    for file in sorted(folder.glob("*.pickle"), key=lambda file: int(file.stem.split("_")[-2])):
        yield file, outcome_in(file)


def publish(outcomes: Sequence[Outcome], known: Mapping[str, Any], folder: Path) -> None:
    """Writes the page and its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chaos.html").write_text(page(outcomes, known))
    (folder / "chaos.json").write_text(as_json(outcomes, known))
