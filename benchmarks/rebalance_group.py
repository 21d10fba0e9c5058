"""A consumer group of real `oncepool run` processes that come, go and die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LONGEST_START = 60.0
"""Seconds after which a group that has not settled is given up."""
LONGEST_END = 45.0
"""Seconds after which a member that was asked to leave is killed; its grace is 30."""
POLL = 0.1

AT_COMMIT = ("not ours any more", "put out of the group", "fatal error", "undecided")
"""Causes of records dropped after they were sent to commit. Where the commit has not landed, the
next owner reads them; where it has, they are lost until their producer sends them again."""


class GroupFailed(Exception):
    """A member ended by itself, or the group did not settle; the message ends with its log."""


@dataclass(eq=False, slots=True)
class Member:
    """One instance."""

    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False
    left: bool = False

    def lines(self) -> list[dict[str, Any]]:
        """Its log so far, without a line that a kill cut off, and without what is no JSON."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def instance(self) -> str:
        """The id that stands in its commits' tokens; empty where it did not get that far."""
        return next((line["instance"] for line in self.lines() if "instance" in line), "")

    @property
    def partitions(self) -> int:
        """How many it owns, by its log."""
        signs = {"partitions assigned": 1, "partitions revoked": -1}
        return sum(signs.get(line["message"], 0) * line.get("n", 0) for line in self.lines())

    @property
    def given_up(self) -> int:
        """Records of commits that it did not know to have landed: said at an orderly end."""
        ends = [line["counts"] for line in self.lines() if line["message"] == "ended"]
        return sum(counts.get(f"drop:{cause}", 0) for counts in ends for cause in AT_COMMIT)

    @property
    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:]


class BenchmarkGroup:
    """Members, in the order in which they were started."""

    def __init__(self, environment: Mapping[str, str], folder: Path, partitions: int) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._partitions = partitions
        self.members: list[Member] = []

    @property
    def alive(self) -> list[Member]:
        """Those that nobody has asked to go."""
        return [member for member in self.members if not (member.killed or member.left)]

    def join(self) -> None:
        """Starts a member; returns before it has joined."""
        log = self._folder / f"member-{len(self.members)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "consumer", "run", "benchmarks.rebalance_app:app"],
                cwd=ROOT,
                env=self._environment,
                stderr=file,
            )
        self.members.append(Member(process, log))

    def leave(self) -> None:
        """Asks the oldest member to end (SIGTERM); returns before it has."""
        member = self.alive[0]
        member.left = True
        member.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the oldest member (SIGKILL)."""
        member = self.alive[0]
        member.killed = True
        member.process.kill()
        member.process.wait()

    def check(self) -> None:
        """Raises GroupFailed where a member has ended that nobody has asked to."""
        for member in self.alive:
            if (code := member.process.poll()) is not None:
                raise GroupFailed(f"a member ended by itself with {code}:\n{member.tail}")

    def settle(self) -> None:
        """Returns when the members share all partitions evenly and the leaving ones are gone.

        Raises GroupFailed.
        """
        self._until(self._even, LONGEST_START)
        leaving = [member for member in self.members if member.left]
        self._until(lambda: all(m.process.poll() is not None for m in leaving), LONGEST_END)

    def end(self) -> None:
        """Asks all to leave, and kills those that do not."""
        while self.alive:
            self.leave()
        for member in self.members:
            try:
                member.process.wait(LONGEST_END)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()

    def _even(self) -> bool:
        shares = [member.partitions for member in self.alive]
        return sum(shares) == self._partitions and max(shares) - min(shares) <= 1

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > end:
                tails = "\n".join(member.tail for member in self.alive)
                raise GroupFailed(f"the group did not settle in {seconds:g} s:\n{tails}")
            time.sleep(POLL)
