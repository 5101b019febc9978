"""The methods: how a parameter and its state change by a gradient.

`value`, `grad` and the state of a parameter are float32 at least. The formulas and their defaults
are torch's, so that runs can be compared step by step. Corrections for the first steps are computed
from the count on the device, 1 - beta**count as -expm1(count * log(beta)), which keeps its digits
where beta is near 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from frontend.optim.optimizer import Group, Optimizer, Parameters, zeros_for
from frontend.tensor import Tensor
from rawgpu.errors import OperationError

Changed = tuple[Tensor, dict[str, Tensor]]


def _moved(old: Tensor, new: Tensor, beta: float) -> Tensor:
    """beta * old + (1 - beta) * new."""
    return old * beta + new * (1.0 - beta)


def _correction(group: Group, beta: float) -> Tensor | float:
    """1 - beta**count: the share of a mean of `count` terms that does not come from its zeros."""
    if beta == 0.0:
        return 1.0
    return -(group.steps_done() * math.log(beta)).expm1()


class SGD(Optimizer):
    """value -= lr * grad; with `momentum` along a running sum of gradients.

    State: momentum_buffer, if there is momentum. Raises OperationError for nesterov without it.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise OperationError("SGD: nesterov needs momentum and no dampening")
        super().__init__(
            parameters,
            lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {"momentum_buffer": zeros_for(parameter)} if group.options["momentum"] else {}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> Changed:
        o = group.options
        grad = _with_decay(value, grad, o)
        if not o["momentum"]:
            return value - group.rate * grad, {}
        buffer = slots["momentum_buffer"] * o["momentum"] + grad * (1.0 - o["dampening"])
        if o["dampening"]:
            buffer = (group.count == 1).where(grad, buffer)
        along = grad + buffer * o["momentum"] if o["nesterov"] else buffer
        return value - group.rate * along, {"momentum_buffer": buffer}


def _with_decay(value: Tensor, grad: Tensor, options: Mapping[str, Any]) -> Tensor:
    """The gradient to go down: of what is to be made small, with the pull towards 0."""
    grad = -grad if options["maximize"] else grad
    return grad + value * options["weight_decay"] if options["weight_decay"] else grad


class Adam(Optimizer):
    """Kingma and Ba (2015): steps of about lr, by running means of the gradient and its square.

    `weight_decay` is added to the gradient. State: exp_avg, exp_avg_sq, with `amsgrad`
    max_exp_avg_sq.
    """

    decoupled = False

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
        )

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group.options["amsgrad"]
        return {name: zeros_for(parameter) for name in names}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> Changed:
        o = group.options
        if self.decoupled:
            grad = -grad if o["maximize"] else grad
            if o["weight_decay"]:
                value = value * (1.0 - group.rate * o["weight_decay"])
        else:
            grad = _with_decay(value, grad, o)
        beta1, beta2 = o["betas"]
        new = {
            "exp_avg": _moved(slots["exp_avg"], grad, beta1),
            "exp_avg_sq": _moved(slots["exp_avg_sq"], grad * grad, beta2),
        }
        square = new["exp_avg_sq"]
        if o["amsgrad"]:
            square = new["max_exp_avg_sq"] = slots["max_exp_avg_sq"].maximum(square)
        # both corrections are scalars: computed once, not for each element
        step = group.rate / _correction(group, beta1)
        scale = 1.0 / _root(_correction(group, beta2))
        return value - step * new["exp_avg"] / (square.sqrt() * scale + o["eps"]), new


def _root(x: Tensor | float) -> Tensor | float:
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


class AdamW(Adam):
    """Adam with decoupled decay (Loshchilov and Hutter, 2019): value *= 1 - lr*weight_decay."""

    decoupled = True

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, amsgrad, maximize)


class Lamb(Optimizer):
    """You et al. (2020): AdamW's direction, scaled for each parameter to lr times its length.

    State: exp_avg, exp_avg_sq.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {name: zeros_for(parameter) for name in ("exp_avg", "exp_avg_sq")}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> Changed:
        o = group.options
        beta1, beta2 = o["betas"]
        mean = _moved(slots["exp_avg"], grad, beta1)
        square = _moved(slots["exp_avg_sq"], grad * grad, beta2)
        unbiased = square / _correction(group, beta2)
        along = mean / _correction(group, beta1) / (unbiased.sqrt() + o["eps"])
        if o["weight_decay"]:
            along = along + value * o["weight_decay"]
        length, step = value.norm(), along.norm()
        usable = (length > 0).logical_and(step > 0)
        trust = usable.where(length / usable.where(step, 1.0), 1.0)
        new = value - group.rate * trust * along
        return new, {"exp_avg": mean, "exp_avg_sq": square}


class RMSprop(Optimizer):
    """Hinton (2012): grad over the root of its running mean square.

    State: square_avg, with `centered` grad_avg, with `momentum` momentum_buffer.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        names = ["square_avg"]
        names += ["grad_avg"] if group.options["centered"] else []
        names += ["momentum_buffer"] if group.options["momentum"] else []
        return {name: zeros_for(parameter) for name in names}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> Changed:
        o = group.options
        grad = _with_decay(value, grad, o)
        new = {"square_avg": _moved(slots["square_avg"], grad * grad, o["alpha"])}
        spread = new["square_avg"]
        if o["centered"]:
            new["grad_avg"] = _moved(slots["grad_avg"], grad, o["alpha"])
            spread = spread - new["grad_avg"] * new["grad_avg"]
        along = grad / (spread.sqrt() + o["eps"])
        if o["momentum"]:
            along = new["momentum_buffer"] = slots["momentum_buffer"] * o["momentum"] + along
        return value - group.rate * along, new


class Adagrad(Optimizer):
    """Duchi et al. (2011): grad over the root of the sum of all squares so far. State: sum."""

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            parameters,
            lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
        )

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {"sum": zeros_for(parameter)}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> Changed:
        o = group.options
        grad = _with_decay(value, grad, o)
        total = slots["sum"] + grad * grad
        rate = group.rate
        if o["lr_decay"]:
            rate = rate / ((group.steps_done() - 1.0) * o["lr_decay"] + 1.0)
        return value - rate * grad / (total.sqrt() + o["eps"]), {"sum": total}
