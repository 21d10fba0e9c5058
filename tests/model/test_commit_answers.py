"""Every answer to a commit that the product has a row for is simulated, with each protocol."""

from __future__ import annotations

from collections import Counter

import pytest

from consumer.intake import commit_errors
from consumer.intake.commit_errors import NOTHING_SAID, Meaning, Verdict
from tests.model.commit_answers import CLASSIC, ENDING, EPOCHS, TRANSIENT
from tests.model.group import PROTOCOLS, World
from tests.model.happenings import step

pytestmark = pytest.mark.no_cover

BESIDES = {NOTHING_SAID, "SOMETHING_NEW"}
"""No rows of the table: what it does not have, and what says nothing."""


def unsimulated() -> set[str]:
    return commit_errors.TABLE.keys() ^ ({*TRANSIENT, *ENDING, *CLASSIC, *EPOCHS} - BESIDES)


def test_every_row_of_the_table_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsimulated() == set()
    ends = {code for code, row in commit_errors.TABLE.items() if row.verdict is Verdict.FATAL}
    assert ends == {*ENDING}
    monkeypatch.setitem(commit_errors.TABLE, "A_NEW_ROW", Meaning(Verdict.AGAIN, "new"))
    assert unsimulated() == {"A_NEW_ROW"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_meets_them_all(protocol: str) -> None:
    happened: Counter[str] = Counter()
    for seed in range(700):
        world = World(seed, protocol=protocol, read_again=seed % 2 == 0)
        world.run(150, step)
        happened += world.happened
    own = EPOCHS if protocol == PROTOCOLS[2] else CLASSIC
    met = {what.removeprefix("error ") for what in happened if what.startswith("error ")}
    assert met == {*TRANSIENT, *ENDING, *own}
    assert happened["a commit's error ends a member"] > 20


def test_who_goes_on_after_an_error_that_nothing_mends_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for code in ENDING:
        monkeypatch.setitem(commit_errors.TABLE, code, Meaning(Verdict.AGAIN, "no end"))
    with pytest.raises(AssertionError, match="goes on after"):
        _run()


def _run() -> None:
    for seed in range(100):
        World(seed).run(150, step)
