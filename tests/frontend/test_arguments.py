"""Arguments that break an operation's rule are refused at the call, by one of our own errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import frontend
from frontend import Tensor, concat, einsum, grad, stack, where
from frontend import dtype as dt
from frontend.nn import functional as F
from rawgpu.errors import (
    AxisError,
    DTypeError,
    IndexOutOfRange,
    OperationError,
    RawGpuError,
    ShapeError,
)

HUGE = 10**400
NAN, INF = float("nan"), float("inf")


def vector() -> Tensor:
    return Tensor([1.0, 2.0, 3.0])


def square() -> Tensor:
    return Tensor([[1.0, 2.0], [3.0, 4.0]])


REFUSED: dict[str, tuple[type[RawGpuError], Callable[[], Any]]] = {
    "add huge": (OperationError, lambda: vector() + HUGE),
    "power huge": (OperationError, lambda: vector() ** HUGE),
    "power huge of integers": (OperationError, lambda: Tensor([2]) ** HUGE),
    "tensor of a huge float": (OperationError, lambda: Tensor(HUGE, dtype="float32")),
    "tensor of NaN as int": (OperationError, lambda: Tensor(NAN, dtype="int32")),
    "list of NaN as int": (OperationError, lambda: Tensor([NAN], dtype="int32")),
    "tensor beyond int32": (OperationError, lambda: Tensor(1e10, dtype="int32")),
    "device 3": (OperationError, lambda: Tensor([1], device=3)),  # type: ignore[arg-type]
    "full NaN": (OperationError, lambda: Tensor.full((2,), NAN, dtype="int32")),
    "full beyond int32": (OperationError, lambda: Tensor.full((2,), 2**40, dtype="int32")),
    "full negative": (OperationError, lambda: Tensor.full((2,), -1, dtype="uint8")),
    "full huge": (OperationError, lambda: Tensor.full((2,), HUGE)),
    "full text": (OperationError, lambda: Tensor.full((2,), "a")),  # type: ignore[arg-type]
    "full_like": (OperationError, lambda: Tensor.full_like(Tensor([1]), 2**70)),
    "zeros beyond indices": (ShapeError, lambda: Tensor.zeros(2**40, 2**40)),
    "argmax of axes": (AxisError, lambda: square().argmax((0, 1))),  # type: ignore[arg-type]
    "sum of a float axis": (AxisError, lambda: square().sum(1.0)),  # type: ignore[arg-type]
    "keepdims": (OperationError, lambda: square().sum(keepdims=np.arange(2))),  # type: ignore[arg-type]
    "einsum None": (OperationError, lambda: einsum(None, square())),  # type: ignore[arg-type]
    "einsum of None": (DTypeError, lambda: einsum("ij->ji", None)),  # type: ignore[arg-type]
    "concat 3": (OperationError, lambda: concat(3)),  # type: ignore[arg-type]
    "concat of a tensor": (OperationError, lambda: concat(square())),  # type: ignore[arg-type]
    "concat of None": (DTypeError, lambda: concat([vector(), None])),  # type: ignore[list-item]
    "stack of shapes": (ShapeError, lambda: stack([vector(), np.ones(2)])),
    "matmul None": (DTypeError, lambda: square() @ None),  # type: ignore[arg-type]
    "add None": (DTypeError, lambda: vector() + None),  # type: ignore[arg-type]
    "where of floats": (DTypeError, lambda: where(np.ones(3), 1.0, 2.0)),
    "where huge": (OperationError, lambda: where(True, HUGE, 1.0)),
    "pad single": (ShapeError, lambda: vector().pad([(1,)])),  # type: ignore[list-item]
    "pad number": (ShapeError, lambda: vector().pad(3)),  # type: ignore[arg-type]
    "pad text": (ShapeError, lambda: vector().pad("ab")),  # type: ignore[arg-type]
    "pad fraction": (OperationError, lambda: vector().pad([(1.5, 0)])),  # type: ignore[list-item]
    "pad with None": (OperationError, lambda: vector().pad([(1, 1)], value=None)),  # type: ignore[arg-type]
    "repeat list": (ShapeError, lambda: vector().repeat([1, 2])),  # type: ignore[arg-type]
    "roll text": (OperationError, lambda: vector().roll("a")),  # type: ignore[arg-type]
    "split text": (OperationError, lambda: vector().split("a")),  # type: ignore[arg-type]
    "chunk fraction": (OperationError, lambda: vector().chunk(1.5)),  # type: ignore[arg-type]
    "tril text": (OperationError, lambda: square().tril("a")),  # type: ignore[arg-type]
    "diagonal text": (OperationError, lambda: square().diagonal("a")),  # type: ignore[arg-type]
    "arange NaN": (OperationError, lambda: Tensor.arange(0, NAN)),
    "arange inf": (OperationError, lambda: Tensor.arange(0, INF)),
    "arange text": (OperationError, lambda: Tensor.arange("a")),  # type: ignore[arg-type]
    "arange endless": (ShapeError, lambda: Tensor.arange(10**30)),
    "arange out of int8": (OperationError, lambda: Tensor.arange(1000, dtype="int8")),
    "linspace text": (OperationError, lambda: Tensor.linspace("a", 1, 2)),  # type: ignore[arg-type]
    "linspace count": (ShapeError, lambda: Tensor.linspace(0, 1, 1.5)),  # type: ignore[arg-type]
    "randint order": (OperationError, lambda: Tensor.randint((3,), 0, 5)),  # type: ignore[arg-type]
    "uniform text": (OperationError, lambda: Tensor.uniform(2, "a")),  # type: ignore[arg-type]
    "normal std": (OperationError, lambda: Tensor.normal(2, 0.0, -1.0)),
    "manual_seed": (OperationError, lambda: frontend.manual_seed("a")),  # type: ignore[arg-type]
    "permutation": (ShapeError, lambda: Tensor.permutation(-1)),
    "dropout rate": (OperationError, lambda: vector().dropout("a")),  # type: ignore[arg-type]
    "bernoulli": (OperationError, lambda: Tensor([0.5, 2.0]).bernoulli()),
    "bernoulli of NaN": (OperationError, lambda: Tensor.full((2,), NAN).bernoulli()),
    "multinomial of zeros": (OperationError, lambda: Tensor([0.0, 0.0]).multinomial()),
    "multinomial negative": (OperationError, lambda: Tensor([2.0, -1.0]).multinomial()),
    "multinomial count": (ShapeError, lambda: vector().multinomial("a")),  # type: ignore[arg-type]
    "one_hot list": (IndexOutOfRange, lambda: F.one_hot([0, 3], 3)),  # type: ignore[arg-type]
    "one_hot classes": (OperationError, lambda: Tensor([0]).one_hot(1.5)),  # type: ignore[arg-type]
    "quantile": (OperationError, lambda: vector().quantile("a")),  # type: ignore[arg-type]
    "topk": (OperationError, lambda: vector().topk("a")),  # type: ignore[arg-type]
    "conv stride": (
        OperationError,
        lambda: Tensor.ones(1, 1, 4).conv1d(Tensor.ones(1, 1, 2), stride=1.5),  # type: ignore[arg-type]
    ),
    "conv groups": (
        OperationError,
        lambda: Tensor.ones(1, 1, 4).conv1d(Tensor.ones(1, 1, 2), groups="a"),  # type: ignore[arg-type]
    ),
    "pool kernel": (OperationError, lambda: Tensor.ones(1, 1, 4).max_pool(1.5)),  # type: ignore[arg-type]
    "norm order": (OperationError, lambda: vector().norm("a")),  # type: ignore[arg-type]
    "layer_norm shape": (ShapeError, lambda: vector().layer_norm("a")),  # type: ignore[arg-type]
    "linear None": (OperationError, lambda: F.linear(vector(), None)),  # type: ignore[arg-type]
    "loss of a list": (OperationError, lambda: F.mse_loss(vector(), [1.0])),  # type: ignore[arg-type]
    "cross_entropy label": (IndexOutOfRange, lambda: square().cross_entropy([0, 2])),
    "cross_entropy array": (IndexOutOfRange, lambda: square().cross_entropy(np.array([-1, 0]))),
    "nll_loss label": (IndexOutOfRange, lambda: F.nll_loss(square(), [0, 2])),
    "embedding": (IndexOutOfRange, lambda: F.embedding([2], square())),
    "gather": (IndexOutOfRange, lambda: vector().gather(0, [3])),
    "scatter": (IndexOutOfRange, lambda: vector().scatter(0, [3], 1.0)),
    "take_along_axis": (IndexOutOfRange, lambda: vector().take_along_axis([-4])),
    "astype None": (DTypeError, lambda: vector().astype(None)),
    "to None": (DTypeError, lambda: vector().to(None)),
    "dtype of text": (DTypeError, lambda: vector().astype("i4,,(")),
    "backward from a number": (OperationError, lambda: summed().backward(2.0)),  # type: ignore[arg-type]
    "backward from an array": (OperationError, lambda: summed().backward(np.ones(())),),  # type: ignore[arg-type]
    "grad of numbers": (OperationError, lambda: grad(summed(), [3])),  # type: ignore[list-item]
    "grad of None": (OperationError, lambda: grad(summed(), None)),  # type: ignore[arg-type]
    "set grad": (OperationError, lambda: setattr(vector(), "grad", "abc")),
    "set grad's shape": (ShapeError, lambda: setattr(vector(), "grad", square())),
    "set grad's dtype": (DTypeError, lambda: setattr(vector(), "grad", Tensor([1, 2, 3]))),
    "pickle": (OperationError, lambda: pickle.dumps(vector())),
    "dlpack option": (OperationError, lambda: vector().__dlpack__(max_version=3)),
    "foreign dlpack": (DTypeError, lambda: Tensor(Evil())),
    "65 axes": (ShapeError, lambda: Tensor.ones(1).reshape((1,) * 65).numpy()),
}  # fmt: skip


class Evil:
    """Claims to export its memory, and fails."""

    def __dlpack__(self, **options: Any) -> Any:
        raise ValueError("no")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def summed() -> Tensor:
    return Tensor([1.0], requires_grad=True).sum()


@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_the_call(what: str) -> None:
    kind, call = REFUSED[what]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, RawGpuError)
    assert ":" in caught.value.message or "dtype" in caught.value.message, caught.value


def test_arrays_and_numbers_are_taken_where_tensors_are() -> None:
    x = vector()
    assert where(np.array([True, False, True]), x, 0.0).tolist() == [1.0, 0.0, 3.0]
    assert where(True, 1, 2).item() == 1
    assert where(x > 1, np.float32(5), np.zeros(3, np.float32)).tolist() == [0.0, 5.0, 5.0]
    assert concat([x, np.ones(1, np.float32)]).tolist() == [1.0, 2.0, 3.0, 1.0]
    assert stack([x, np.zeros(3, np.float32)]).shape == (2, 3)
    assert einsum("i,i->", x, np.ones(3, np.float32)).item() == 6.0
    assert x.dot(np.ones(3, np.float32)).item() == 6.0
    assert x.gather(0, [-1, 0]).tolist() == [3.0, 1.0]
    assert F.embedding([1, 0], square()).tolist() == [[3.0, 4.0], [1.0, 2.0]]
    labels = np.array([0, -100])
    assert square().cross_entropy(labels).item() == square().cross_entropy(Tensor(labels)).item()


def test_none_is_the_default_dtype_of_what_is_created() -> None:
    assert Tensor.zeros(2, dtype=None).dtype is dt.float32
    assert Tensor.ones(2, dtype=None).dtype is dt.float32
    assert Tensor.eye(2, dtype=None).dtype is dt.float32
    assert Tensor.rand(2, dtype=None).dtype is dt.float32
    assert Tensor.linspace(0, 1, 2, dtype=None).dtype is dt.float32
    assert Tensor.randint(0, 2, 2, dtype=None).dtype is dt.int64
    with pytest.raises(DTypeError):
        dt.of(None)


def test_a_copy_is_the_same_value() -> None:
    assert copy.copy(vector()).tolist() == [1.0, 2.0, 3.0]


def test_indices_in_a_tensor_are_not_looked_at() -> None:
    outside = Tensor([0, 7])
    assert outside.one_hot(2).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert F.embedding(outside, square()).tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_diagonals_far_outside_leave_all_or_nothing() -> None:
    x = Tensor.ones(2, 2)
    assert x.tril(2**62).sum().item() == 4
    assert x.triu(2**62).sum().item() == 0
    assert Tensor.eye(2, offset=-(2**62)).sum().item() == 0


def test_integer_remainders_are_exact() -> None:
    big = 2**53 + 1
    x = Tensor([big, -big, 7, -7, 5, -(2**63)])
    y = Tensor([10, 10, -3, 3, 0, -1])
    assert x.fmod(y).tolist() == [3, -3, 1, -1, 0, 0]
    assert x.remainder(y).tolist() == [3, 7, -2, 2, 0, 0]
    assert Tensor([200], dtype="uint8").fmod(7).tolist() == [4]
    assert Tensor([True]).fmod(Tensor([True])).tolist() == [0]


def test_topk_and_sort_put_nan_last() -> None:
    x = Tensor([NAN, 1.0, 3.0, 2.0])
    assert x.topk(2).values.tolist() == [3.0, 2.0]
    assert x.topk(2, largest=False).values.tolist() == [1.0, 2.0]
    assert x.topk(3).indices.tolist() == x.argsort(descending=True).tolist()[:3]


def slope(function: Callable[[Tensor], Tensor], values: list[float]) -> list[float]:
    x = Tensor(values, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    found: list[float] = x.grad.tolist()
    return found


def test_slopes_at_limits_are_torchs() -> None:
    ends = [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert slope(lambda x: x.clip(-1, 1), ends) == [0, 1, 1, 1, 0]
    assert slope(lambda x: x.clip(Tensor(-1.0), Tensor(1.0)), ends) == [0, 1, 1, 1, 0]
    assert slope(lambda x: x.hardtanh(), ends) == [0, 0, 1, 0, 0]
    assert slope(F.relu6, [0.0, 1.0, 6.0]) == [0, 1, 0]
    assert slope(F.hardswish, [-3.0, 3.0]) == [-0.5, 1.5]


def test_clip_keeps_nan_and_takes_limits_in_turn() -> None:
    values = Tensor([NAN, -5.0, 0.5, 5.0])
    assert values.clip(0, 1).isnan().tolist() == [True, False, False, False]
    assert values[1:].clip(0, 1).tolist() == [0.0, 0.5, 1.0]
    assert values[1:].clip(3, 1).tolist() == [1.0, 1.0, 1.0]
    assert values[1:].clip(NAN).isnan().all().item()
    assert Tensor([1, 5, 9]).clip(2, 6).tolist() == [2, 5, 6]


def test_roots_of_nothing_have_no_slope() -> None:
    assert slope(lambda x: x.std(), [2.0, 2.0, 2.0]) == [0.0, 0.0, 0.0]
    assert slope(lambda x: x.norm(), [0.0, 0.0]) == [0.0, 0.0]
    assert slope(lambda x: x.norm(3), [0.0, 0.0]) == [0.0, 0.0]
    assert slope(lambda x: x.norm(), [3.0, 4.0]) == pytest.approx([0.6, 0.8])
