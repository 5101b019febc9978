"""What tests make go wrong, chosen beforehand: calls that fail, engines that stop, lost interrupts.

    room.faults.fail("AllocMemoryOfGpu", nth=2, errno=ENOMEM)
    room.faults.hang(gpu=0, packet=7)

Counts begin at 1 and count from the moment the fault is planted. A planted fault strikes once
unless `times` says otherwise. `pending` lists what has not struck yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum


class Strike(Enum):
    """What happens to an engine when a planted fault is due."""

    HANG = "hang"
    RESET = "reset"
    ECC = "ecc"
    LOSE_INTERRUPT = "lose interrupt"
    DELAY_INTERRUPT = "delay interrupt"


@dataclass
class Refusal:
    """A call that will be refused."""

    call: str
    nth: int
    errno: int
    times: int = 1


@dataclass
class Blow:
    """Something that will happen to a GPU at its n-th packet or interrupt."""

    strike: Strike
    gpu: int
    nth: int
    times: int = 1
    steps: int = 0


@dataclass
class Faults:
    """All planted faults of a room."""

    refusals: list[Refusal] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)

    def fail(self, call: str, *, errno: int, nth: int = 1, times: int = 1) -> None:
        """Refuse the `nth` call by that name: a request's class, or `open`, `mmap`, `munmap`."""
        self.refusals.append(Refusal(call, nth, errno, times))

    def hang(self, *, gpu: int = 0, packet: int = 1) -> None:
        """Stop the queue that reaches the GPU's `packet`-th packet from now, for ever."""
        self.blows.append(Blow(Strike.HANG, gpu, packet))

    def reset(self, *, gpu: int = 0, packet: int = 1) -> None:
        """Reset the GPU at its `packet`-th packet from now; VRAM is lost."""
        self.blows.append(Blow(Strike.RESET, gpu, packet))

    def ecc(self, *, gpu: int = 0, packet: int = 1) -> None:
        """An uncorrectable memory error at the GPU's `packet`-th packet from now."""
        self.blows.append(Blow(Strike.ECC, gpu, packet))

    def lose_interrupt(self, *, gpu: int = 0, nth: int = 1, times: int = 1) -> None:
        """Drop the GPU's `nth` interrupt from now."""
        self.blows.append(Blow(Strike.LOSE_INTERRUPT, gpu, nth, times))

    def delay_interrupt(self, *, gpu: int = 0, nth: int = 1, steps: int = 1000) -> None:
        """Deliver the GPU's `nth` interrupt from now `steps` steps late."""
        self.blows.append(Blow(Strike.DELAY_INTERRUPT, gpu, nth, 1, steps))

    def refuse(self, call: str) -> int:
        """The errno with which this call is to fail; 0 if it is to go on."""
        for refusal in self.refusals:
            if refusal.call == call and refusal.times:
                refusal.nth -= 1
                if refusal.nth <= 0:
                    refusal.times -= 1
                    return refusal.errno
        return 0

    def at_packet(self, gpu: int) -> Strike | None:
        """What strikes at this packet, which is counted."""
        return self._due(gpu, (Strike.HANG, Strike.RESET, Strike.ECC), None)

    def at_interrupt(self, gpu: int) -> tuple[Strike, int] | None:
        """What strikes this interrupt, which is counted, and by how many steps it is late."""
        late: list[int] = []
        strike = self._due(gpu, (Strike.LOSE_INTERRUPT, Strike.DELAY_INTERRUPT), late)
        return None if strike is None else (strike, late[0])

    def _due(self, gpu: int, kinds: tuple[Strike, ...], late: list[int] | None) -> Strike | None:
        found = None
        for blow in self.blows:
            if blow.gpu == gpu and blow.strike in kinds and blow.times:
                blow.nth -= 1
                if blow.nth <= 0 and found is None:
                    blow.times -= 1
                    found = blow.strike
                    if late is not None:
                        late.append(blow.steps)
        return found

    def pending(self) -> Iterator[Refusal | Blow]:
        """What has not struck yet."""
        yield from (r for r in self.refusals if r.times)
        yield from (b for b in self.blows if b.times)

    def clear(self) -> None:
        """Forget all."""
        self.refusals.clear()
        self.blows.clear()
