"""What must have become of all that was sent to a simulated group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.group import World


def check_books(world: World) -> None:
    """Nothing was lost that nobody may have dropped, and nothing was put back."""
    carried = {
        (place, offset)
        for (_, metadata), batch in world.batches.items()
        for place, offsets in batch.items()
        if (place, metadata) in world.landed
        for offset in offsets
    }
    produced = {(place, offset) for place, end in world.ends.items() for offset in range(end)}
    if world.breaks_reported:
        assert not world.rewound, f"offsets were put back: {world.rewound}"
    if world.read_again:
        lost = produced - world.finished - (world.left_alone & world.gone_with)
        assert not lost, f"never finished: {sorted(lost)}"
        return
    for key in sorted(produced - world.dispatched.keys()):
        assert key in world.maybe_lost, f"{key} was never run, and nobody dropped it"
        assert key in carried, f"{key} was lost, though no commit with it landed"
