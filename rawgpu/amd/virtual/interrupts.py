"""Interrupts on their way from GPUs to the kernel: late by a seeded number of steps, or lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawgpu.virtual.faults import Strike

if TYPE_CHECKING:
    from rawgpu.amd.virtual.gpu import Gpu
    from rawgpu.amd.virtual.machine import Machine
    from rawgpu.amd.virtual.process import Process

LATE_STEPS = 4


@dataclass(frozen=True)
class Pending:
    """One interrupt that the kernel has not seen yet."""

    due: int
    gpu: Gpu
    process: Process
    context: int


class Interrupts:
    """All interrupts of a machine that are under way."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.pending: list[Pending] = []
        self._chance = machine.chance.fork("interrupts")

    def raise_one(self, gpu: Gpu, process: Process, context: int) -> None:
        """A GPU raised one."""
        late = self._chance.below(LATE_STEPS)
        struck = self._machine.faults.at_interrupt(gpu.number)
        if struck is not None:
            if struck[0] is Strike.LOSE_INTERRUPT:
                return
            late = struck[1]
        self.pending.append(Pending(self._machine.steps + late, gpu, process, context))

    def deliver(self, *, idle: bool = False) -> bool:
        """Hand over what is due; if all else is idle, the next. Whether there was one."""
        due = [p for p in self.pending if p.due <= self._machine.steps]
        if not due and idle and self.pending:
            due = [min(self.pending, key=lambda p: p.due)]
        for pending in due:
            self.pending.remove(pending)
            # gfx9 from GC 9.4.1 on: the kernel drops end-of-pipe interrupts without a context.
            hardware = pending.gpu.board.hardware
            if not pending.context and not hardware.interrupt_context_is_event:
                continue
            pending.process.events.interrupt(pending.context)
        return bool(due)
