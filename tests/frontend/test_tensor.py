"""`Tensor` itself: where values come from, where they go, and what it refuses at the call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from frontend import (
    Tensor,
    arange,
    concat,
    einsum,
    engine,
    eye,
    from_dlpack,
    full,
    linspace,
    stack,
    where,
)
from frontend import dtype as dt
from frontend.graph import node as g
from rawgpu.errors import (
    AxisError,
    DeviceNotFound,
    DTypeError,
    IndexOutOfRange,
    OperationError,
    ShapeError,
)
from tests.frontend import cells

# -- creation


def test_numbers_and_lists_have_default_dtypes() -> None:
    assert (Tensor(1).dtype, Tensor(1.0).dtype, Tensor(True).dtype) == (
        dt.int64,
        dt.float32,
        dt.bool_,
    )
    assert Tensor([[1, 2], [3, 4]]).dtype is dt.int64
    assert Tensor([1, 2.5]).tolist() == [1.0, 2.5]
    assert Tensor([1, 2.5]).dtype is dt.float32
    assert (Tensor([]).shape, Tensor([]).dtype) == ((0,), dt.float32)
    assert Tensor(range(3)).tolist() == [0, 1, 2]
    assert Tensor([1.7, -1.7], dtype="int8").tolist() == [1, -1]
    assert Tensor(3.7, dtype="int32").item() == 3
    assert Tensor([1, 0], dtype=bool).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [*cells.EVERYTHING, *dt.FP8], ids=str)
def test_arrays_keep_their_dtype_and_come_back(dtype: dt.DType) -> None:
    array = cells.draw(np.random.default_rng(0), (3, 4), dtype)
    tensor = Tensor(array)
    assert tensor.dtype is dtype
    back = tensor.numpy()
    wanted = array if dtype.is_native else array.astype(np.float32)
    assert back.dtype == wanted.dtype
    np.testing.assert_array_equal(back, wanted)


def test_arrays_of_any_strides_and_byte_order_are_copied() -> None:
    array = np.arange(24, dtype=">i4").reshape(4, 6)[::-2, ::3]
    tensor = Tensor(array)
    expected = array.tolist()
    array[:] = 0
    assert tensor.tolist() == expected
    locked = np.ones(3)
    locked.flags.writeable = False
    assert Tensor(locked).tolist() == [1, 1, 1]
    assert Tensor(np.float16(2.5)).dtype is dt.float16
    assert Tensor(np.ones((2, 3), order="F")).shape == (2, 3)
    assert Tensor(np.array(5)).shape == ()


def test_numpy_gives_a_fresh_array() -> None:
    tensor = Tensor([1, 2])
    tensor.numpy()[:] = 0
    assert tensor.tolist() == [1, 2]
    assert np.asarray(tensor, dtype=np.float32).dtype == np.float32


def test_dlpack_goes_both_ways() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert from_dlpack(array.T).tolist() == array.T.tolist()
    np.testing.assert_array_equal(np.from_dlpack(Tensor(array)), array)
    torch = pytest.importorskip("torch", reason="torch is an oracle, not a requirement")
    assert Tensor(torch.arange(3)).tolist() == [0, 1, 2]
    assert torch.from_dlpack(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_ranges_and_simple_matrices_agree_with_numpy() -> None:
    for arguments in [(5,), (2, 9, 3), (9, 2, -2), (0,), (5, 5)]:
        assert arange(*arguments).tolist() == np.arange(*arguments).tolist()
    for floats in [(0.0, 1.0, 0.25), (1.0, -1.0, -0.5), (0.0, 1.01, 0.25)]:
        np.testing.assert_allclose(arange(*floats).numpy(), np.arange(*floats), rtol=1e-6)
    for count in (0, 1, 2, 7):
        ours = linspace(-1.0, 2.0, count, dtype="float64")
        np.testing.assert_allclose(
            ours.numpy(), np.linspace(-1.0, 2.0, count), rtol=1e-15, atol=1e-16
        )
    assert linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75]
    assert linspace(0.1, 0.7, 5).tolist()[-1] == np.float32(0.7)
    assert eye(2, 3, 1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert full((2,), 7).dtype is dt.int64
    assert Tensor.zeros(2, 1).tolist() == [[0], [0]]
    assert Tensor.ones((1, 2), dtype="int8").dtype is dt.int8
    assert Tensor([1.0]).zeros_like("int32").dtype is dt.int32
    assert Tensor([2, 0, 5]).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]


# -- conversions


def test_one_element_becomes_a_python_number() -> None:
    assert (float(Tensor(2.5)), int(Tensor([3])), bool(Tensor([[0]]))) == (2.5, 3, False)
    assert [10, 20, 30][Tensor(1)] == 20
    assert Tensor([[True]]).item() is True
    for convert in (bool, int, float):
        with pytest.raises(ShapeError):
            convert(Tensor([1, 2]))
    with pytest.raises(DTypeError):
        [1, 2][Tensor(1.0)]


def test_a_tensor_is_a_sequence_of_its_first_axis() -> None:
    x = Tensor([[1, 2], [3, 4]])
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    with pytest.raises(ShapeError, match="no length"):
        len(Tensor(1))


def test_what_is_printed_says_shape_dtype_and_device() -> None:
    kind = f"shape=(2,), dtype=float32, device={engine.default_device()}"
    assert repr(Tensor([1.5, 2.0])) == f"Tensor([1.5, 2], {kind})"
    assert repr(Tensor.zeros(2) + 1) == f"Tensor({kind}, lazy)"
    assert "[" not in repr(Tensor(np.zeros(1000))).replace("shape=(1000,)", "")


def test_bits_are_reinterpreted() -> None:
    assert Tensor([1.0]).bitcast("int32").item() == 0x3F800000
    assert Tensor(np.array([0x3C00], np.uint16)).bitcast("float16").item() == 1.0
    with pytest.raises(DTypeError, match="same width"):
        Tensor([1.0]).bitcast("int64")


def test_to_casts_and_moves() -> None:
    x = Tensor([1.5])
    assert x.to("int32").dtype is dt.int32
    assert x.to(dt.float64).dtype is dt.float64
    assert x.to(np.float16).dtype is dt.float16
    assert x.to(engine.default_device()) is x


# -- laziness


def test_realizing_forgets_history_and_keeps_the_value() -> None:
    x = Tensor([1.0, 2.0])
    y = (x * 2 + 1).exp()
    assert not y.is_realized
    y.realize()
    assert y.node.op is g.Op.BUFFER
    z = y + 1
    np.testing.assert_allclose(z.numpy(), np.exp([3.0, 5.0]) + 1, rtol=1e-6)


def test_constants_are_realized_on_their_device() -> None:
    x = Tensor.ones(3)
    assert x.node.device is None
    assert x.realize().node.device == x.device
    assert (arange(3) * 2).tolist() == [0, 2, 4]


def test_several_tensors_realize_in_one_go() -> None:
    a, b = Tensor([1.0]) + 1, Tensor([2.0]) * 3
    assert a.realize(b) is a
    assert (a.is_realized, b.is_realized) == (True, True)


def test_copies_are_independent() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = copy.deepcopy(x)
    assert y.requires_grad
    assert y.is_leaf
    (y * 2).sum().backward()
    assert x.grad is None
    z = x.clone()
    (z * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


# -- refusals: at the call, naming operation, shapes and rule

A, B, I = Tensor.zeros(2, 3), Tensor.zeros(4, 5), Tensor([1, 2, 3])  # noqa: E741 - I for integers

REFUSALS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: A + B, ShapeError, r"add: shapes \(2, 3\) and \(4, 5\).*axis -2.*2 and 4"),
    (lambda: A @ B, ShapeError, r"matmul: shapes \(2, 3\) and \(4, 5\).*3.*4"),
    (lambda: A @ Tensor(1.0), ShapeError, "scalar"),
    (lambda: A.reshape(7), ShapeError, r"reshape: \(2, 3\) has 6 elements and \(7,\) has 7"),
    (lambda: A.reshape(-1, 4), ShapeError, "no multiple of 4"),
    (lambda: A.reshape(-1, -1), ShapeError, "only one"),
    (lambda: A.sum(2), AxisError, "sum: axis 2 is outside a tensor of 2 axes"),
    (lambda: A.sum((0, -2)), AxisError, "twice"),
    (lambda: A.permute(0, 0), AxisError, "twice"),
    (lambda: A.permute(0), AxisError, "all 2 axes"),
    (lambda: A.squeeze(0), ShapeError, "extent 2, not 1"),
    (lambda: A.expand(4, 3), ShapeError, "does not broadcast"),
    (lambda: A[2], IndexOutOfRange, r"index 2 is outside axis 0 of extent 2 of \(2, 3\)"),
    (lambda: A[[0, -3]], IndexOutOfRange, "index -3"),
    (lambda: A[0, 0, 0], IndexOutOfRange, "3 indices for the 2 axes"),
    (lambda: A[1.5], DTypeError, "integers or bool"),
    (lambda: A[Tensor([0.5])], DTypeError, "integers or bool, not float32"),
    (lambda: A[Tensor([True])], IndexOutOfRange, r"mask of shape \(1,\)"),
    (lambda: A[True], OperationError, "None adds an axis"),
    (lambda: A[::0], OperationError, "zero"),
    (lambda: A.take([3], 1), IndexOutOfRange, "index 3 is outside axis 1"),
    (lambda: concat([A, B]), ShapeError, r"concat: \(2, 3\) and \(4, 5\)"),
    (lambda: stack([A, B]), ShapeError, "differ"),
    (lambda: concat([]), OperationError, "at least one"),
    (lambda: A.split([1, 2]), ShapeError, "do not add up"),
    (lambda: A.pad([(1, 1)], "reflective"), OperationError, "none of constant"),
    (lambda: A.pad([(3, 0)], "reflect"), ShapeError, "at most 2"),
    (lambda: A & 1, DTypeError, "bitwise_and: takes integers and bool, not float32"),
    (lambda: ~A, DTypeError, "bitwise_invert"),
    (lambda: -Tensor([True]), DTypeError, "not defined for bool"),
    (lambda: Tensor([True]) - Tensor([True]), DTypeError, "not defined for bool"),
    (lambda: I.astype("uint64") + I, DTypeError, "add: uint64 and int64 have no common dtype"),
    (lambda: I.astype("uint8") + 300, OperationError, "add: 300 is outside uint8"),
    (lambda: I**-1, OperationError, "negative power"),
    (lambda: where(A, A, A), DTypeError, "not bool"),
    (lambda: Tensor([1], dtype="complex64"), DTypeError, "no dtype"),
    (lambda: Tensor(np.array(["a"])), DTypeError, "no dtype of ours"),
    (lambda: Tensor(np.array([1j])), DTypeError, "no dtype of ours"),
    (lambda: Tensor([[1], [2, 3]]), ShapeError, "unequal length"),
    (lambda: Tensor(object()), DTypeError, "object"),
    (lambda: Tensor([300], dtype="uint8"), OperationError, "do not fit uint8"),
    (lambda: Tensor(2**70), OperationError, "outside int64"),
    (lambda: Tensor([1], device="gpu:9"), DeviceNotFound, "gpu:9"),
    (lambda: Tensor.zeros(2, -1), ShapeError, "negative extent"),
    (lambda: Tensor.zeros(2.5), ShapeError, "integers"),
    (lambda: A.max(0)[:0].max(), OperationError, "hold no element"),
    (lambda: einsum("ij,jk->ik", A, B), ShapeError, "'j' has extents 3 and 4"),
    (lambda: einsum("ij->ik", A), OperationError, "no operand has 'k'"),
    (lambda: einsum("i", A), ShapeError, "does not name the 2 axes"),
    (lambda: einsum("ij,jk", A), OperationError, "names 2 operands and 1"),
    (lambda: A.topk(4), ShapeError, "4 of the 3 elements"),
    (lambda: A.sort(2), AxisError, "sort: axis 2"),
    (lambda: A.conv2d(B), ShapeError, "conv2d"),
    (lambda: _image().conv2d(Tensor.zeros(2, 4, 3, 3)), ShapeError, "3 channels.*takes 4"),
    (lambda: _image().conv2d(Tensor.zeros(2, 3, 9, 9)), ShapeError, "spans 9.*extent 8"),
    (lambda: _image().conv2d(Tensor.zeros(2, 3, 3, 3), padding="full"), OperationError, "'same'"),
    (lambda: _image().conv2d(Tensor.zeros(2, 3, 3, 3), groups=2), ShapeError, "2 groups"),
    (lambda: _image().conv2d(Tensor.zeros(2, 3, 3, 3), Tensor.zeros(3)), ShapeError, "bias"),
    (lambda: _image().max_pool2d(9), ShapeError, "window of 9"),
    (lambda: _image().max_pool2d(2, padding=2), ShapeError, "half of the kernel"),
    (lambda: A.cross_entropy(Tensor([1, 2, 3])), ShapeError, "cross_entropy"),
    (lambda: A.cross_entropy(I[:2], "avg"), OperationError, "reduction"),
    (lambda: A.layer_norm(4), ShapeError, "layer_norm"),
    (lambda: A.gather(0, I), ShapeError, "differ in rank"),
    (lambda: A.gather(0, Tensor([[0.5]])), DTypeError, "integers"),
    (lambda: A.item(), ShapeError, "6 elements"),
    (lambda: A.gelu("fast"), OperationError, "gelu"),
    (
        lambda: _assign(A, 0, B),
        ShapeError,
        r"setitem: a value of shape \(4, 5\) does not fit \(3,\)",
    ),
    (lambda: _assign(A, (0, 5), 1), IndexOutOfRange, "setitem: index 5"),
    (lambda: A.__iadd__(Tensor.zeros(4, 2, 3)), ShapeError, "in place"),
    (lambda: Tensor([1]).__iadd__(1.5), DTypeError, "in place, int64 cannot become float32"),
    (lambda: arange(0, 1, 0), OperationError, "step of 0"),
    (lambda: A.matmul([["a"]]), DTypeError, "no dtype of ours"),
    (lambda: A.tensordot(B, 1), ShapeError, "differ in extent"),
]


def _image() -> Tensor:
    return Tensor.zeros(1, 3, 8, 8)


def _assign(x: Tensor, key: Any, value: Any) -> None:
    x[key] = value


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_bad_input_is_refused_at_the_call(number: int) -> None:
    call, error, pattern = REFUSALS[number]
    with pytest.raises(error, match=f"(?s){pattern}") as caught:
        call()
    assert isinstance(caught.value, (OperationError, DeviceNotFound))


def test_ml_dtypes_arrays_are_taken() -> None:
    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert Tensor(x).dtype is dt.bfloat16
    assert Tensor(x).tolist() == [1.5, -2.0]
