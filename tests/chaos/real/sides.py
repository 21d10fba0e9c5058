"""What is at work beside the group: an outbox with its relays, a gateway with its callers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos.real.facts import Facts
from tests.chaos.real.gateway_side import GatewaySide
from tests.chaos.real.outbox_side import OutboxSide


@dataclass(frozen=True)
class Sides:
    """Those of one episode."""

    outbox: OutboxSide | None = None
    gateway: GatewaySide | None = None

    def start(self) -> None:
        for side in (self.outbox, self.gateway):
            if side is not None:
                side.start()

    @property
    def pending(self) -> list[str]:
        """Ids of requests that went through the gateway and have no answer."""
        return self.gateway.pending if self.gateway is not None else []

    def quiet(self) -> None:
        """Nothing new any more; what is pending goes on."""
        if self.outbox is not None:
            self.outbox.close()
        if self.gateway is not None:
            self.gateway.quiet()

    def settled(self) -> bool:
        """Whether everything has its answer."""
        return not self.pending and (self.outbox is None or self.outbox.settled())

    def finish(self, facts: Facts) -> None:
        """Ends their processes in order, and enters what was seen of them."""
        if self.outbox is not None:
            facts.ended_by_itself += self.outbox.wrong_ends()
            self.outbox.end()
            facts.orders = self.outbox.facts()
        if self.gateway is not None:
            facts.ended_by_itself += self.gateway.finish()
            facts.gateway = self.gateway.facts()

    def end(self) -> None:
        """Ends all of it."""
        for side in (self.outbox, self.gateway):
            if side is not None:
                side.end()
