"""Options that benchmarks share: a quick run, and the number of rounds."""

from __future__ import annotations

import argparse


def parser_of(about: str, quick: str, rounds: int) -> argparse.ArgumentParser:
    """`about`: a docstring; `quick`: what is less in a quick run, which has one round."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {rounds})")
    return parser


def rounds_of(options: argparse.Namespace, rounds: int) -> int:
    """As many as were asked for, else one in a quick run, else `rounds`."""
    return options.rounds or (1 if options.quick else rounds)
