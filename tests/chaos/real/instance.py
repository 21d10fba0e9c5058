"""An instance whose main process takes orders: ``oncepool run``, armed."""

from __future__ import annotations

import os
import sys

from consumer.__main__ import main
from consumer.intake.loop import Loop
from tests.chaos.real import clock
from tests.chaos.real.harms import do
from tests.chaos.real.orders import Obedience
from tests.chaos.real.pauses import PauseLog
from tests.chaos.soak.leaks import VARIABLE, Leaks


def arm(obedience: Obedience, pauses: PauseLog | None, leaks: Leaks | None) -> None:
    """The loop of the main process comes by a point at each turn."""
    turn = Loop.turn

    def turn_armed(self: Loop) -> None:
        if (harm := obedience.take("main_turn", "")) is not None:
            do(harm)
        if pauses is not None:
            pauses.collect_now_and_then()
        if leaks is not None:
            leaks.drip()
        turn(self)

    Loop.turn = turn_armed  # type: ignore[method-assign]


if __name__ == "__main__":
    clock.follow()
    noted, planted = os.environ.get("CHAOS_PAUSES"), os.environ.get(VARIABLE)
    arm(
        Obedience(os.environ["CHAOS_ORDERS"]),
        PauseLog(noted) if noted else None,
        Leaks(planted.split(",")) if planted else None,
    )
    sys.argv = ["oncepool", "run"]
    main()
