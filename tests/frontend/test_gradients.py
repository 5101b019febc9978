"""Every derivative against central differences in float64, and its meaning at kinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, concat, einsum, grad, no_grad, stack, where
from frontend import dtype as dt
from frontend.graph import gradient
from frontend.graph import node as g
from rawgpu.errors import DTypeError, OperationError, ShapeError
from tests.frontend.cells import Array

Function = Callable[..., Tensor]

X = (3, 4)
MIXED = (-2.0, 2.0)
POSITIVE = (0.3, 3.0)
INSIDE = (-0.9, 0.9)

# name: function, shapes of its inputs, range of their values
CASES: dict[str, tuple[Function, Sequence[tuple[int, ...]], tuple[float, float]]] = {
    "add": (lambda x, y: x + y, [X, (4,)], MIXED),
    "subtract": (lambda x, y: x - y, [X, (3, 1)], MIXED),
    "rsubtract": (lambda x: 1 - x, [X], MIXED),
    "multiply": (lambda x, y: x * y, [X, (1, 4)], MIXED),
    "divide": (lambda x, y: x / y, [X, X], POSITIVE),
    "remainder": (lambda x, y: x % y, [X, X], POSITIVE),
    "fmod": (lambda x, y: x.fmod(y), [X, X], POSITIVE),
    "power": (lambda x, y: x**y, [X, X], POSITIVE),
    "square": (lambda x: x**2 + x**-3 + x**0.5, [X], POSITIVE),
    "rpower": (lambda x: 2.5**x, [X], MIXED),
    "atan2": (lambda x, y: x.atan2(y), [X, X], MIXED),
    "copysign": (lambda x, y: x.copysign(y), [X, X], MIXED),
    "hypot": (lambda x, y: x.hypot(y), [X, X], MIXED),
    "logaddexp": (lambda x, y: x.logaddexp(y), [X, X], MIXED),
    "maximum": (lambda x, y: x.maximum(y), [X, X], MIXED),
    "minimum": (lambda x, y: x.minimum(y), [X, X], MIXED),
    "clip": (lambda x: x.clip(-1, 1), [X], MIXED),
    "lerp": (lambda x, y: x.lerp(y, 0.3), [X, X], MIXED),
    "where": (lambda x, y: where(x.detach() > 0, x * 2, y * 3), [X, X], MIXED),
    "abs": (Tensor.abs, [X], MIXED),
    "negative": (Tensor.negative, [X], MIXED),
    "reciprocal": (Tensor.reciprocal, [X], POSITIVE),
    "relu": (Tensor.relu, [X], MIXED),
    "sigmoid": (Tensor.sigmoid, [X], MIXED),
    "silu": (Tensor.silu, [X], MIXED),
    "softplus": (Tensor.softplus, [X], MIXED),
    "gelu": (Tensor.gelu, [X], MIXED),
    "gelu tanh": (lambda x: x.gelu("tanh"), [X], MIXED),
    "leaky_relu": (Tensor.leaky_relu, [X], MIXED),
    "elu": (Tensor.elu, [X], MIXED),
    "cast": (lambda x: x.astype("float64") * x, [X], MIXED),
    "sum": (lambda x: x.sum(0) * x.sum(1, keepdims=True), [X], MIXED),
    "mean": (lambda x: x.mean((0, 1)), [X], MIXED),
    "var": (lambda x: x.var(1, correction=1), [X], MIXED),
    "std": (lambda x: x.std(0), [X], MIXED),
    "norm": (lambda x: x.norm(2, 1), [X], MIXED),
    "norm 3": (lambda x: x.norm(3, 1), [X], MIXED),
    "prod": (lambda x: x.prod(1), [X], MIXED),
    "prod of all": (lambda x: x.prod((0, 2)), [(2, 3, 2)], MIXED),
    "max": (lambda x: x.max(1), [X], MIXED),
    "min": (lambda x: x.min(), [X], MIXED),
    "softmax": (lambda x: x.softmax(), [X], MIXED),
    "log_softmax": (lambda x: x.log_softmax(0), [X], MIXED),
    "logsumexp": (lambda x: x.logsumexp(1), [X], MIXED),
    "cumsum": (lambda x: x.cumsum(1), [X], MIXED),
    "cumprod": (lambda x: x.cumprod(0), [X], MIXED),
    "cummax": (lambda x: x.cummax(1), [X], MIXED),
    "cummin": (lambda x: x.cummin(0), [X], MIXED),
    "diff": (lambda x: x.diff(1), [X], MIXED),
    "reshape": (lambda x: x.reshape(2, 6), [X], MIXED),
    "permute": (lambda x: x.permute(1, 2, 0), [(2, 3, 2)], MIXED),
    "expand": (lambda x: x.expand_dims(1).expand(3, 2, 4), [X], MIXED),
    "flip and roll": (lambda x: x.flip(0).roll(1, 1), [X], MIXED),
    "tile and repeat": (lambda x: x.tile(2, 1).repeat(2, 1), [X], MIXED),
    "pad": (lambda x: x.pad([(1, 2), (-1, 0)], value=3.0), [X], MIXED),
    "pad reflect": (lambda x: x.pad([(2, 1)], "reflect"), [X], MIXED),
    "pad wrap": (lambda x: x.pad([(2, 1)], "wrap"), [X], MIXED),
    "tril": (lambda x: x.tril(), [X], MIXED),
    "diagonal": (lambda x: x.diagonal(1), [X], MIXED),
    "diag": (lambda x: x.diag(), [(3,)], MIXED),
    "concat and stack": (lambda x, y: concat([stack([x, y]), x[None]]), [X, X], MIXED),
    "split": (lambda x: x.split([1, 3], 1)[1], [X], MIXED),
    "slice": (lambda x: x[::-2, 1:3], [X], MIXED),
    "index": (lambda x: x[[0, 2, 0], [1, -1, 1]], [X], MIXED),
    "mask": (lambda x: x[np.array([True, False, True])], [X], MIXED),
    "take_along_axis": (lambda x: x.take_along_axis(Tensor([[0, 0, 2]] * 3), 1), [X], MIXED),
    "assign to a slice": (
        lambda x, y: assigned(x, (slice(None), slice(0, 4, 2)), y),
        [X, (3, 2)],
        MIXED,
    ),
    "assign to a list": (lambda x, y: assigned(x, [0, 2, 0], y), [X, X], MIXED),
    "assign to a mask": (lambda x, y: assigned(x, x.detach() > 0, y), [X, (1,)], MIXED),
    "scatter_add": (lambda x, y: x.scatter_add(0, Tensor([[0, 1, 1, 0]]), y), [X, (1, 4)], MIXED),
    "index_add": (lambda x, y: x.index_add(0, Tensor([2, 2]), y), [X, (2, 4)], MIXED),
    "sort": (lambda x: x.sort(1), [X], MIXED),
    "topk": (lambda x: x.topk(2).values, [X], MIXED),
    "median": (lambda x: x.median(1), [X], MIXED),
    "matmul": (lambda x, y: x @ y, [(2, 3, 4), (4, 5)], MIXED),
    "vector matmul": (lambda x, y: x @ y, [(4,), (3, 4, 2)], MIXED),
    "einsum": (lambda x, y: einsum("bij,kj->bik", x, y), [(2, 3, 4), (5, 4)], MIXED),
    "outer": (lambda x, y: x.outer(y), [(3,), (2,)], MIXED),
    "conv1d": (lambda x, w, b: x.conv1d(w, b, 2, 1), [(2, 4, 6), (4, 2, 3), (4,)][:3], MIXED),
    "conv2d": (lambda x, w: x.conv2d(w, None, 2, 1, 1, 2), [(1, 4, 5, 5), (2, 2, 3, 3)], MIXED),
    "conv2d dilated": (
        lambda x, w: x.conv2d(w, None, 1, 2, 2),
        [(1, 2, 5, 5), (2, 2, 3, 3)],
        MIXED,
    ),
    "conv3d": (lambda x, w: x.conv3d(w), [(1, 2, 3, 3, 3), (2, 2, 2, 2, 2)], MIXED),
    "conv_transpose": (
        lambda x, w: x.conv_transpose(w, None, 2, 1, 1),
        [(1, 2, 3, 3), (2, 2, 3, 3)],
        MIXED,
    ),
    "max_pool": (lambda x: x.max_pool2d(3, 2, 1), [(1, 2, 5, 5)], MIXED),
    "avg_pool": (lambda x: x.avg_pool2d(2, ceil_mode=True), [(1, 2, 5, 5)], MIXED),
    "adaptive_avg_pool": (lambda x: x.adaptive_avg_pool((2, 3)), [(1, 2, 5, 5)], MIXED),
    "cross_entropy": (
        lambda x: x.cross_entropy(Tensor([1, 0, 3]), label_smoothing=0.1),
        [X],
        MIXED,
    ),
    "layer_norm": (lambda x, w, b: x.layer_norm(4, w, b), [X, (4,), (4,)], MIXED),
}

for _name in [
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "erf",
]:
    CASES[_name] = (getattr(Tensor, _name), [X], (-1.2, 1.2))
for _name in ["sqrt", "rsqrt", "log", "log2", "log10", "log1p"]:
    CASES[_name] = (getattr(Tensor, _name), [X], POSITIVE)
for _name in ["asin", "acos", "atanh"]:
    CASES[_name] = (getattr(Tensor, _name), [X], INSIDE)
CASES["acosh"] = (Tensor.acosh, [X], (1.2, 3.0))
CASES["conv1d"] = (lambda x, w, b: x.conv1d(w, b, 2, 1), [(2, 2, 6), (4, 2, 3), (4,)], MIXED)


def assigned(x: Tensor, key: Any, value: Tensor) -> Tensor:
    out = x * 2
    out[key] = value
    return out


def differences(function: Function, arrays: list[Array], weights: Array, which: int) -> Array:
    """d sum(weights * function(arrays)) / d arrays[which], each element bumped on its own."""
    step = 1e-6
    out = np.zeros_like(arrays[which])
    for place in np.ndindex(out.shape):
        sides = []
        for sign in (1, -1):
            bumped = [a.copy() for a in arrays]
            bumped[which][place] += sign * step
            sides.append((function(*(Tensor(a) for a in bumped)).numpy() * weights).sum())
        out[place] = (sides[0] - sides[1]) / (2 * step)
    return out


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_derivative_agrees_with_finite_differences(name: str) -> None:
    function, shapes, (low, high) = CASES[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.uniform(low, high, shape) for shape in shapes]
    inputs = [Tensor(a, requires_grad=True) for a in arrays]
    result = function(*inputs)
    weights = rng.uniform(0.5, 1.5, result.shape)
    result.backward(Tensor(weights))
    for which, leaf in enumerate(inputs):
        theirs = differences(function, arrays, weights, which)
        ours = np.zeros_like(theirs) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_every_operation_has_a_rule_or_a_reason_for_none() -> None:
    steps = {g.Op.NOT, g.Op.FLOOR, g.Op.CEIL, g.Op.TRUNC, g.Op.ROUND, g.Op.FLOORDIV}
    no_floats = g.BITWISE | g.COMPARE | {g.Op.ARGMAX, g.Op.ARGMIN, g.Op.ARGSORT, g.Op.BITCAST}
    ends = {g.Op.BUFFER, g.Op.CONST, g.Op.IOTA, g.Op.DETACH}
    assert set(g.Op) - set(gradient.RULES) == steps | no_floats | ends


def slope(function: Function, *values: float | list[float]) -> list[Any]:
    inputs = [Tensor(np.array(v, np.float64), requires_grad=True) for v in values]
    function(*inputs).sum().backward()
    return [None if x.grad is None else x.grad.tolist() for x in inputs]


def test_equals_share_the_derivative_and_kinks_have_the_one_we_state() -> None:
    assert slope(Tensor.maximum, 1.0, 1.0) == [0.5, 0.5]
    assert slope(Tensor.max, [1.0, 3.0, 3.0]) == [[0.0, 0.5, 0.5]]
    assert slope(Tensor.abs, 0.0) == [0.0]
    assert slope(Tensor.relu, 0.0) == [0.0]
    assert slope(lambda x: x.max_pool(2), [[[1.0, 1.0]]]) == [[[[0.5, 0.5]]]]
    assert slope(lambda x: x.cummax(0), [1.0, 0.0, 2.0]) == [[2.0, 0.0, 1.0]]
    assert slope(Tensor.floor, 1.5) == [None]


def test_products_are_differentiated_at_zeros() -> None:
    assert slope(Tensor.prod, [2.0, 0.0, 3.0]) == [[0.0, 6.0, 0.0]]
    assert slope(Tensor.prod, [0.0, 0.0, 3.0]) == [[0.0, 0.0, 0.0]]
    assert slope(lambda x: x.cumprod(0), [2.0, 0.0, 3.0]) == [[1.0, 8.0, 0.0]]
    assert slope(lambda x, y: x**y, 0.0, 2.0) == [0.0, 0.0]
    assert slope(lambda x, y: x**y, 3.0, 0.0) == [0.0, pytest.approx(np.log(3))]


def test_backward_adds_to_the_gradients_of_leaves() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0, 7.0]
    assert not x.grad.requires_grad


def test_leaves_of_one_value_are_told_apart() -> None:
    a, b = Tensor.zeros(2, requires_grad=True), Tensor.zeros(2, requires_grad=True)
    (a * 2 + b * 3).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([2, 2], [3, 3])  # type: ignore[union-attr]


def test_derivatives_of_derivatives() -> None:
    x = Tensor(np.array([0.5, 2.0]), requires_grad=True)
    (first,) = grad((x**3).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    np.testing.assert_allclose(first.numpy(), 3 * x.numpy() ** 2)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())
    assert third.tolist() == [6.0, 6.0]
    (hidden,) = grad((x.exp() * x.detach()).sum(), x)
    np.testing.assert_allclose(hidden.numpy(), np.exp(x.numpy()) * x.numpy())


def test_gradients_of_inner_tensors_and_of_strangers() -> None:
    x = Tensor(2.0, requires_grad=True)
    y = x * x
    z = y * y
    inner, outer, stranger = grad(z, [y, x, Tensor([1.0, 2.0])])
    assert (inner.item(), outer.item(), stranger.tolist()) == (8.0, 32.0, [0.0, 0.0])
    assert x.grad is None


def test_nothing_flows_through_detach_and_no_grad() -> None:
    x = Tensor(3.0, requires_grad=True)
    with no_grad():
        quiet = x * 5
    assert not quiet.requires_grad
    (x * quiet + x.detach() * 7).backward()
    assert x.grad is not None
    assert x.grad.item() == 15.0
    with pytest.raises(OperationError, match="requires a gradient"):
        quiet.backward()


def test_realizing_in_between_changes_no_gradient() -> None:
    x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    y = (x * x).realize()
    y.numpy()
    (y * x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [3.0, 12.0])


def test_a_leaf_that_is_assigned_stays_a_leaf() -> None:
    w = Tensor.ones(2, requires_grad=True)
    loss = (w * 4).sum()
    w.assign([5.0, 6.0])
    loss.backward()  # the graph has the old value, and leads to the same leaf
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [14.0, 16.0]
    with pytest.raises(OperationError, match="changed in place"):
        w += 1
    with no_grad():
        w += 1
    assert w.is_leaf
    assert w.tolist() == [6.0, 7.0]


def test_a_step_of_training_forgets_its_history() -> None:
    w = Tensor.ones(3, requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
        assert w.grad is not None
        w.assign(w - w.grad * 0.1)
        w.grad = None
        w.realize()
        assert w.node.op is g.Op.BUFFER
    np.testing.assert_allclose(w.numpy(), np.full(3, 0.8**3), rtol=1e-6)


def test_graphs_deeper_than_the_stack_are_differentiated() -> None:
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + x
    nodes = gradient.gradients(y.node, g.const(1.0, (), dt.float32), [x.node])
    assert nodes[0] is not None


def test_refusals_name_the_rule() -> None:
    with pytest.raises(DTypeError, match="only floats"):
        Tensor([1, 2], requires_grad=True)
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match="needs a gradient to start from"):
        (x * 2).backward()
    with pytest.raises(ShapeError, match="should be"):
        (x * 2).backward(Tensor([1.0]))


def test_gradients_of_narrow_floats_have_their_dtype() -> None:
    x = Tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    (x.astype("float32") * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is dt.float16


def test_a_small_network_has_torchs_gradients() -> None:
    torch = pytest.importorskip("torch", reason="torch is an oracle, not a requirement")
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(4, 2, 8, 8)), rng.integers(0, 3, 4)
    kernel, dense = rng.normal(size=(3, 2, 3, 3)), rng.normal(size=(27, 3))
    k, d = (Tensor(a, requires_grad=True) for a in (kernel, dense))
    hidden = Tensor(x).conv2d(k, padding=1).gelu("tanh").max_pool2d(3, 2).flatten(1)
    hidden.layer_norm(27).matmul(d).cross_entropy(Tensor(labels)).backward()
    tk, td = (torch.tensor(a, requires_grad=True) for a in (kernel, dense))
    functional = torch.nn.functional
    theirs = functional.gelu(functional.conv2d(torch.tensor(x), tk, padding=1), approximate="tanh")
    theirs = functional.max_pool2d(theirs, 3, 2).flatten(1)
    theirs = functional.layer_norm(theirs, (27,)) @ td
    functional.cross_entropy(theirs, torch.tensor(labels)).backward()
    np.testing.assert_allclose(k.grad.numpy(), tk.grad.numpy(), rtol=1e-8, atol=1e-12)  # type: ignore[union-attr]
    np.testing.assert_allclose(d.grad.numpy(), td.grad.numpy(), rtol=1e-8, atol=1e-12)  # type: ignore[union-attr]
