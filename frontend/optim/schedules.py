"""Learning rates that change: each schedule is a function of the number of steps done.

A schedule takes the optimiser's rates as they are when it is made as the base, sets the first
rates, and with each `step` the next. The rate is written to the device (`Optimizer.set_rates`);
kernels stay as they are. Call it outside of a recorded step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from frontend.optim.optimizer import Optimizer
from rawgpu.errors import OperationError


class Schedule:
    """Base: `rate` says a group's rate after `count` steps from its base rate."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.base_rates = optimizer.rates()
        self.count = 0
        self._apply()

    def rate(self, base: float, count: int) -> float:
        """The learning rate after `count` steps."""
        raise NotImplementedError(type(self).__name__)

    def _apply(self) -> None:
        self.optimizer.set_rates([self.rate(base, self.count) for base in self.base_rates])

    def step(self) -> None:
        """Go on by one, and set the rates."""
        self.count += 1
        self._apply()

    def state_dict(self) -> dict[str, int]:
        """How far it is."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.count = state["count"]
        self._apply()


class LambdaLR(Schedule):
    """The base rate times what a function of the count says."""

    def __init__(self, optimizer: Optimizer, function: Callable[[int], float]) -> None:
        self.function = function
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        return base * self.function(count)


class StepLR(Schedule):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise OperationError(f"StepLR: a step size of {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        return base * self.gamma ** (count // self.step_size)


class MultiStepLR(Schedule):
    """Times `gamma` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, count)


class ExponentialLR(Schedule):
    """Times `gamma` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        return base * self.gamma**count


class CosineAnnealingLR(Schedule):
    """Half a cosine from the base rate to `eta_min` in `steps` steps, and back again."""

    def __init__(self, optimizer: Optimizer, steps: int, eta_min: float = 0.0) -> None:
        if steps < 1:
            raise OperationError(f"CosineAnnealingLR: {steps} steps")
        self.steps = steps
        self.eta_min = eta_min
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        turn = math.cos(math.pi * count / self.steps)
        return self.eta_min + (base - self.eta_min) * (1.0 + turn) / 2.0


class LinearLR(Schedule):
    """A factor that goes from `start` to `end` in `steps` steps and stays: a warm-up."""

    def __init__(
        self, optimizer: Optimizer, start: float = 1.0 / 3, end: float = 1.0, steps: int = 5
    ) -> None:
        if steps < 1:
            raise OperationError(f"LinearLR: {steps} steps")
        self.start = start
        self.end = end
        self.steps = steps
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        share = min(count, self.steps) / self.steps
        return base * (self.start + (self.end - self.start) * share)


class WarmupCosine(Schedule):
    """Up from 0 to the base rate in `warmup` steps, then a cosine down to `eta_min` at `steps`.

    The first rate is base / warmup, not 0: no step is lost.
    """

    def __init__(self, optimizer: Optimizer, warmup: int, steps: int, eta_min: float = 0.0) -> None:
        if not 0 <= warmup < steps:
            raise OperationError(f"WarmupCosine: {warmup} of {steps} steps")
        self.warmup = warmup
        self.steps = steps
        self.eta_min = eta_min
        super().__init__(optimizer)

    def rate(self, base: float, count: int) -> float:
        if count < self.warmup:
            return base * (count + 1) / self.warmup
        share = min(1.0, (count - self.warmup) / (self.steps - self.warmup))
        return self.eta_min + (base - self.eta_min) * (1.0 + math.cos(math.pi * share)) / 2.0


class ReduceLROnPlateau:
    """Times `factor` when the metric given to `step` has not fallen for `patience` steps.

    To fall it must be less than the best so far by the share `threshold`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        min_lr: float = 0.0,
    ) -> None:
        if not 0 <= factor < 1:
            raise OperationError(f"ReduceLROnPlateau: a factor of {factor}")
        self.optimizer = optimizer
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.min_lr = min_lr
        self.best = math.inf
        self.bad_steps = 0

    def step(self, metric: float) -> None:
        """Take the metric after an epoch, and lower the rates if it is time."""
        if metric < self.best * (1.0 - self.threshold):
            self.best = metric
            self.bad_steps = 0
            return
        self.bad_steps += 1
        if self.bad_steps > self.patience:
            rates = self.optimizer.rates()
            self.optimizer.set_rates([max(rate * self.factor, self.min_lr) for rate in rates])
            self.bad_steps = 0
