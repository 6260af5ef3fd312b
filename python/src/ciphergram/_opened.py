"""What a sum opens to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._arrays import to_torch

if TYPE_CHECKING:
    from ._native import Ranges


class Opened(dict[str, Any]):
    """Arrays by name: the weighted mean of the contributors' tensors, or their weighted sum.

    Where tensors were given in dictionaries within dictionaries, arrays are in such too; `ranges` and `clipped` name
    them `layer/kernel`.

    Attributes:
        contributors: The numbers of the clients whose updates are in every value of it, or in some.
        fewest: The fewest contributors of any value.
        round: The round's number.
        ranges: The ranges that updates were clipped to, and the largest weight.
        total: Whether it is the sum and not the mean.
        clipped: How many values of each tensor of this client were out of range; None where a sum
            was opened that this call sent nothing to.
    """

    contributors: list[int]
    fewest: int
    round: int
    ranges: Ranges
    total: bool
    clipped: dict[str, int] | None

    def __init__(
        self,
        arrays: Mapping[str, Any],
        *,
        contributors: list[int],
        fewest: int,
        round: int,
        ranges: Ranges,
        total: bool = False,
        clipped: dict[str, int] | None = None,
    ) -> None:
        super().__init__(arrays)
        self.contributors = contributors
        self.fewest = fewest
        self.round = round
        self.ranges = ranges
        self.total = total
        self.clipped = clipped

    def to_torch(self) -> dict[str, Any]:
        """Return torch tensors over the memory of the arrays, of the same types: `load_state_dict(mean.to_torch())`."""
        return _to_torch(self)


def _to_torch(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_torch(each) if isinstance(each, dict) else to_torch(each) for name, each in arrays.items()}
