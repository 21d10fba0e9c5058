from pathlib import Path

import pytest

from benchmarks.tally import Mark, Tally, counted, marks, rate_between


def test_what_processes_have_counted_is_added_up_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1.0 10\n3.0 25\n")
    (tmp_path / "two").write_text("2.0 5\n4.0 6\n5.0 7")  # the last line is being written
    assert marks(tmp_path) == [Mark(1, 10), Mark(2, 15), Mark(3, 30), Mark(4, 31)]


def test_a_tally_tells_steps_and_keeps_what_is_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY", str(tmp_path))
    tally = Tally(step=10)
    for amount in (4, 4, 4, 9, 30):
        tally.add(amount)
    assert [mark.done for mark in marks(tmp_path)] == [12, 51]
    Tally(step=10).add(3)
    assert counted(tmp_path) == (51 + 3, 51 + 3)
    assert marks(tmp_path)[-1].done == 51


def test_what_counts_more_is_one_request_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY", str(tmp_path))
    tally = Tally(step=1)
    for milliseconds in (1, 100, 10):
        tally.add(each=milliseconds)
    assert (counted(tmp_path), marks(tmp_path)[-1].done) == ((3, 111), 111)


def test_the_rate_lies_between_two_amounts() -> None:
    found = [Mark(1, 10), Mark(2, 20), Mark(4, 100), Mark(9, 110)]
    assert rate_between(found, 15, 90) == 40
    with pytest.raises(ValueError, match="110 is too little"):
        rate_between(found, 15, 111)
    with pytest.raises(ValueError, match="0 is too little"):
        rate_between([], 1, 2)
