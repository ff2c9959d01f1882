"""Schedule of a field trial: blocks of equal length in which the extender acts or is in shadow.

Blocks are numbered from the Unix epoch. Two consecutive blocks are a pair, and one block of each pair is active. A hash
of the trial's name and of the pair's number decides which one, so the order is random, every replica of the extender
has the same schedule without asking the others, and a restart continues it.
"""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """Block of a trial's schedule.

    Attributes:
        number: number of the block since the Unix epoch.
        active: whether the extender acts in the block; if not, it is in shadow.
        start, end: begin and end, Unix seconds.
    """

    number: int
    active: bool
    start: float
    end: float

    @property
    def pair(self) -> int:
        """Number of the pair that the block belongs to."""
        return self.number // 2


@dataclass(frozen=True, slots=True)
class TrialSchedule:
    """Schedule of a trial.

    Attributes:
        name: name of the trial, which determines the order of the blocks.
        block_seconds: length of a block.
        pairs: number of pairs until the trial ends.
    """

    name: str = "trial"
    block_seconds: int = 1800
    pairs: int = 96

    def block(self, number: int) -> Block:
        """Return the block with a number."""
        start = float(number * self.block_seconds)
        is_active = number % 2 == self._active_half(number // 2)
        return Block(number, is_active, start, start + self.block_seconds)

    def block_at(self, now: float) -> Block:
        """Return the block that contains a Unix time."""
        return self.block(int(now // self.block_seconds))

    def pair_after(self, now: float) -> int:
        """Return the number of the first pair that begins at a Unix time or later."""
        return -int(-now // (2 * self.block_seconds))

    def _active_half(self, pair: int) -> int:
        """Return 0 if the first block of a pair is active, 1 if the second one is."""
        return hashlib.blake2b(f"{self.name}/{pair}".encode(), digest_size=1).digest()[0] & 1
