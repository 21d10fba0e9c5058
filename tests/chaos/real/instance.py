"""An instance whose main process takes orders: ``oncepool run``, armed."""

from __future__ import annotations

import os
import sys

from consumer.cli import main
from consumer.intake.loop import Loop
from tests.chaos.real import clock
from tests.chaos.real.harms import do
from tests.chaos.real.orders import Obedience


def arm(obedience: Obedience) -> None:
    """The loop of the main process comes by a point at each turn."""
    turn = Loop.turn

    def turn_armed(self: Loop) -> None:
        if (harm := obedience.take("main_turn", "")) is not None:
            do(harm)
        turn(self)

    Loop.turn = turn_armed  # type: ignore[method-assign]


if __name__ == "__main__":
    clock.follow()
    arm(Obedience(os.environ["CHAOS_ORDERS"]))
    sys.argv = ["oncepool", "run"]
    main()
