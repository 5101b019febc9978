"""`Optimizer`: what all methods share. A method says how a parameter and its state change.

Everything that a step reads and changes lies in device memory: parameters, moments, the count of
steps and the learning rate. So one program serves all steps, and a recorded step can be replayed:
a new rate is another value in a buffer, not another kernel. `step` computes parameters, state,
running statistics of modules and what else the caller names in one go.

Moments are float32 for parameters of float16 and bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from frontend import dtype as dt
from frontend import state
from frontend.dtype import DType
from frontend.nn.module import load_values
from frontend.ops.common import no_grad
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError

Parameters: TypeAlias = Iterable[Tensor] | Iterable[Mapping[str, Any]]


@dataclass(eq=False)
class Group:
    """Parameters that are changed with the same options."""

    parameters: list[Tensor]
    options: dict[str, Any]
    """Numbers and flags that are written into kernels."""
    rate: Tensor
    """The learning rate: a scalar."""
    count: Tensor
    """How many steps were done: a scalar of int64."""
    slots: list[dict[str, Tensor]] = field(default_factory=list)
    """For each parameter its state by name."""

    def steps_done(self) -> Tensor:
        """The count as a float of the rate's dtype."""
        return self.count.astype(self.rate.dtype)


class Optimizer:
    """Base of the methods: `state_of` and `change` are theirs.

    `parameters`: tensors, or mappings with "params" and options that differ for these. All of a
    group are on one device. Raises OperationError for none, for one named twice, for one that is no
    leaf that requires a gradient.
    """

    def __init__(self, parameters: Parameters, lr: float, **options: Any) -> None:
        _check_options(type(self).__name__, {"lr": lr, **options})
        self.groups: list[Group] = []
        self._seen: set[int] = set()
        listed: list[Any] = list(parameters)
        if not listed:
            raise OperationError(f"{type(self).__name__}: there are no parameters to train")
        groups = listed if isinstance(listed[0], Mapping) else [{"params": listed}]
        for group in groups:
            self._add(group, {"lr": lr, **options})
        state.realize_all(state.waiting())

    def _add(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        name = type(self).__name__
        own = {key: value for key, value in given.items() if key != "params"}
        if unknown := own.keys() - defaults.keys():
            raise OperationError(f"{name}: no option {', '.join(sorted(unknown))}")
        options = {**defaults, **own}
        _check_options(name, options)
        params = given["params"]
        tensors = [params] if isinstance(params, Tensor) else list(params)
        for tensor in tensors:
            self._check(name, tensor)
        if len({tensor.device for tensor in tensors}) > 1:
            raise OperationError(
                f"{name}: parameters of a group on several devices", hint="a group for each device"
            )
        if not tensors:
            return
        device = tensors[0].device
        wide = dt.float64 if any(t.dtype is dt.float64 for t in tensors) else dt.float32
        rate = state.number(options.pop("lr"), wide, device)
        group = Group(tensors, options, rate, state.number(0, dt.int64, device))
        group.slots = [self.state_of(tensor, group) for tensor in tensors]
        self.groups.append(group)

    def _check(self, name: str, tensor: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise OperationError(f"{name}: {type(tensor).__name__} is no parameter")
        if not tensor.requires_grad or not tensor.is_leaf:
            raise OperationError(
                f"{name}: a tensor of shape {tensor.shape} is no leaf that requires a gradient"
            )
        if id(tensor) in self._seen:
            raise OperationError(f"{name}: a parameter of shape {tensor.shape} is named twice")
        self._seen.add(id(tensor))

    # -- what a method defines

    def state_of(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        """The first state of a parameter, by name."""
        return {}

    def change(
        self, value: Tensor, grad: Tensor, slots: Mapping[str, Tensor], group: Group
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A parameter's new value, and its new state, from value and gradient."""
        raise NotImplementedError(type(self).__name__)

    # -- use

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, group by group."""
        return [tensor for group in self.groups for tensor in group.parameters]

    @property
    def lr(self) -> float:
        """The learning rate of the first group; setting it sets that of all."""
        return self.rates()[0]

    @lr.setter
    def lr(self, value: float) -> None:
        self.set_rates([value] * len(self.groups))

    def rates(self) -> list[float]:
        """The learning rate of each group."""
        return [_shortest(group.rate) for group in self.groups]

    def set_rates(self, values: Iterable[float]) -> None:
        """Give each group its learning rate: a write of a few bytes, and no kernel."""
        for group, value in zip(self.groups, values, strict=True):
            group.rate.assign(state.number(value, group.rate.dtype, group.rate.device))

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for tensor in self.parameters:
            tensor.grad = None

    def update(self) -> list[Tensor]:
        """Give parameters and state their next values, uncomputed, and return them.

        Parameters without a gradient stay. For those who compute the values with others of theirs.
        """
        changed: list[Tensor] = []
        with no_grad():
            for group in self.groups:
                group.count.assign(group.count + 1)
                changed.append(group.count)
                for parameter, slots in zip(group.parameters, group.slots, strict=True):
                    if parameter.grad is None:
                        continue
                    wide = dt.accumulator(parameter.dtype)
                    value = parameter.detach().astype(wide)
                    grad = parameter.grad.detach().astype(wide)
                    new, new_slots = self.change(value, grad, slots, group)
                    parameter.assign(new)
                    changed.append(parameter)
                    for name, slot in new_slots.items():
                        slots[name].assign(slot)
                        changed.append(slots[name])
        return changed

    def step(self, *also: Tensor) -> None:
        """Do one step from the gradients there are, and compute it together with `also`."""
        state.realize_all([*self.update(), *state.waiting(), *also])

    # -- state dicts

    def _state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        place = 0
        for number, group in enumerate(self.groups):
            found[f"group.{number}.lr"] = group.rate
            found[f"group.{number}.step"] = group.count
            for slots in group.slots:
                for name, slot in slots.items():
                    found[f"state.{place}.{name}"] = slot
                place += 1
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """Rates, counts of steps and moments: values, which later steps do not change.

        "group.G.lr" and "group.G.step" of group G, "state.I.NAME" of parameter I of all, with
        torch's names: exp_avg, momentum_buffer and so on.
        """
        return {name: tensor.detach() for name, tensor in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Take the values of a state dict. Raises OperationError and ShapeError where they differ.

        Nothing has changed then.
        """
        own = self._state()
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and (missing or unexpected):
            name = type(self).__name__
            raise OperationError(
                f"{name}.load_state_dict: missing {missing}, unexpected {unexpected}",
                hint="the same method over the same parameters in the same order",
            )
        values = {name: state[name] for name in own if name in state}
        load_values(own, values, f"{type(self).__name__}.load_state_dict")


def zeros_for(parameter: Tensor) -> Tensor:
    """Zeros of a parameter's shape, in the dtype its moments have."""
    return state.zeros(parameter.shape, wide_type(parameter), parameter.device)


def wide_type(parameter: Tensor) -> DType:
    """The dtype in which a parameter's moments are kept."""
    return dt.accumulator(parameter.dtype)


def _shortest(rate: Tensor) -> float:
    """A rate as the person wrote it: 0.01 where float32 has 0.009999999776."""
    value = float(rate.item())
    return value if rate.dtype is dt.float64 else float(f"{value:.7g}")


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Rates and their like are numbers from 0; betas are below 1."""
    for key, value in options.items():
        parts = value if isinstance(value, (tuple, list)) else (value,)
        if key == "betas" and len(parts) != 2:
            raise ShapeError(f"{name}: betas are two numbers, not {value!r}")
        for part in parts:
            if not isinstance(part, (bool, int, float)):
                raise OperationError(f"{name}: {key} is a number, not {part!r}")
            if not part >= 0 or (key in ("betas", "alpha") and part >= 1):
                raise OperationError(f"{name}: {key} {value} is out of range")
