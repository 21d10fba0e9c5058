from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.tutorial import Shell, Step, steps

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def test_each_sh_block_is_a_step_with_the_lines_that_follow() -> None:
    page = "x\n```sh\na\nb\n```\n```console\n$ c\n```\n```text\n1\n...2\n```\n```sh\nd\n```\n"

    assert steps(page) == [Step("a\nb\n", ["1", "...2"]), Step("d\n")]
    with pytest.raises(ValueError, match="before it"):
        steps("```text\n1\n```\n")


def test_lines_have_to_come_in_their_order() -> None:
    step = Step("", ["order-1 ... done ...", "{...} 1.0", "end"])

    assert step.missing("order-1 x y done ok\nother\n{a} 1.0\nend\n") == []
    assert step.missing("{a} 1.0\norder-1 x done\nend") == ["{...} 1.0", "end"]
    assert step.missing("") == step.lines


def test_blocks_share_a_shell_which_ends_where_a_command_fails(tmp_path: Path) -> None:
    with Shell(tmp_path, os.environ) as shell:
        assert shell.enter("mkdir a\ncd a\nx=1") == "\n"
        assert shell.enter('echo "$x"; basename "$PWD"').split() == ["1", "a"]
        with pytest.raises(AssertionError, match="a command failed"):
            shell.enter("false")


def test_the_tutorial_says_of_most_steps_what_appears() -> None:
    found = steps(PAGE.read_text("utf-8"))

    assert len(found) >= 8
    assert sum(bool(step.lines) for step in found) >= len(found) - 1
