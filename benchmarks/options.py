"""Options that benchmarks share: a quick run, the number of rounds, and what makes a run whole."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

FREE: Final = ("rounds", "against", "own")
"""Options that leave a run whole."""


def parser_of(about: str, quick: str, rounds: int) -> argparse.ArgumentParser:
    """`about`: a docstring; `quick`: what is less in a quick run, which has one round."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {rounds})")
    return parser


def add_count(parser: argparse.ArgumentParser, count: int) -> None:
    """How many requests a run has: see `count_of`."""
    parser.add_argument("--count", type=int, help=f"requests of a run (default: {count:,})")


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Worker processes, two of them by default."""
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")


def options_of(
    parser: argparse.ArgumentParser, *free: str, given: Sequence[str] | None = None
) -> argparse.Namespace:
    """The options, with `whole`: whether the run does all that it does by itself.

    Only such a run may take the place of what the last one left in results/. It may have fewer
    rounds or further sides, and the `free` options of its benchmark.
    """
    options = parser.parse_args(given)
    bound = vars(options).keys() - {*FREE, *free}
    options.whole = all(getattr(options, name) == parser.get_default(name) for name in bound)
    return options


def count_of(options: argparse.Namespace, count: int) -> int:
    """As many requests as were asked for, else a third of `count` in a quick run, else `count`."""
    return options.count or (count // 3 if options.quick else count)


def rounds_of(options: argparse.Namespace, rounds: int) -> int:
    """As many as were asked for, else one in a quick run, else `rounds`."""
    return options.rounds or (1 if options.quick else rounds)
