"""Matrix products, einsum, convolutions and pools against NumPy and plain loops, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, einsum
from frontend import dtype as dt
from frontend.dtype import DType
from tests.frontend import cells
from tests.frontend.cells import FLOATS, INTEGERS, Array

MATRICES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 1, 3, 4), (6, 4, 2)),
    ((5,), (3, 5, 2)),
]


def compared(
    request: pytest.FixtureRequest, name: str, dtype: DType, pairs: list[Any], ulps: float
) -> None:
    """Each pair is (ours, NumPy's, shapes): 30 examples of each, and one cell for all."""
    for number in range(cells.EXAMPLES):
        rng = np.random.default_rng(number)
        results = []
        for ours, theirs, shapes in pairs:
            arrays = [cells.draw(rng, shape, dtype) for shape in shapes]
            wide = [cells.widened(a) for a in arrays]
            with np.errstate(all="ignore"):
                expected = np.asarray(theirs(*wide))
                scale = np.asarray(theirs(*(np.abs(a) for a in wide))) if dtype.is_float else None
            results.append((ours(*(Tensor(a) for a in arrays)), expected, scale))
        results[0][0].realize(*(r for r, _, _ in results[1:]))
        for result, expected, scale in results:
            assert result.dtype is dtype
            cells.agree(
                result,
                expected.astype(np.float64 if dtype.is_float else dtype.numpy),
                ulps=ulps,
                scale=scale,
            )
    request.node.user_properties.append((f"cell {name} {dtype}", cells.EXAMPLES))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_matmul_agrees_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    pairs = [(Tensor.matmul, np.matmul, shapes) for shapes in MATRICES]
    compared(request, "matmul", dtype, pairs, ulps=4)


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
    ("b...i,i->...b", [(2, 3, 4), (4,)]),
    ("ijk,jl,kl->il", [(2, 3, 4), (3, 5), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("ij,ij->i", [(3, 4), (3, 4)]),
    ("iij,jk->ik", [(3, 3, 2), (2, 4)]),
]


@pytest.mark.parametrize("dtype", [dt.float16, dt.float32, dt.float64, dt.int32], ids=str)
def test_einsum_agrees_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    pairs = [
        (
            lambda *t, text=text: einsum(text, *t),
            lambda *a, text=text: np.einsum(text, *a),
            shapes,
        )
        for text, shapes in EINSUMS
    ]
    compared(request, "einsum", dtype, pairs, ulps=12)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int64], ids=str)
def test_relatives_of_matmul_agree_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    pairs: list[Any] = [
        (lambda x, y: x.outer(y), np.outer, [(3,), (2, 2)]),
        (lambda x, y: x.tensordot(y, 1), lambda a, b: np.tensordot(a, b, 1), [(2, 3), (3, 4)]),
        (
            lambda x, y: x.tensordot(y, ([0, 2], [1, 0])),
            lambda a, b: np.tensordot(a, b, ([0, 2], [1, 0])),
            [(2, 3, 4), (4, 2, 5)],
        ),
        (lambda x, y: x.kron(y), np.kron, [(2, 3), (3, 2)]),
        (lambda x, y: x.vecdot(y), lambda a, b: (a * b).sum(-1), [(2, 3), (3,)]),
        (lambda x, y: x.dot(y), np.dot, [(3,), (3,)]),
        (lambda x: x.trace(), np.trace, [(3, 4)]),
    ]
    compared(request, "outer, tensordot, kron, vecdot, dot, trace", dtype, pairs, ulps=4)


def test_contracting_nothing_gives_zeros() -> None:
    assert (Tensor.ones(2, 0) @ Tensor.ones(0, 3)).tolist() == [[0.0] * 3] * 2
    assert (Tensor.ones(0, 2) @ Tensor.ones(2, 3)).numpy().shape == (0, 3)


def test_products_of_narrow_floats_are_summed_in_float32() -> None:
    ones = Tensor.full((1, 4096), 1.0, "float16")
    assert (ones @ ones.T).item() == 4096
    row = Tensor.full((1, 4096), 1.0, "bfloat16")
    assert (row @ row.T).item() == 4096


# -- convolutions: NumPy has none, so the definition as loops


def conv_by_loops(
    x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int
) -> Array:
    spatial = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * spatial)
    kernel = w.shape[2:]
    out = [
        (n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    inner, outer = w.shape[1], w.shape[0] // groups
    for o, tap in itertools.product(range(w.shape[0]), np.ndindex(*kernel)):
        channels = slice(o // outer * inner, (o // outer + 1) * inner)
        window = tuple(
            slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride)
            for t, n in zip(tap, out, strict=True)
        )
        part = x[(slice(None), channels, *window)]
        y[:, o] += np.tensordot(part, w[(o, slice(None), *tap)], ([1], [0]))
    return y


def transposed_by_loops(
    x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int, extra: int
) -> Array:
    kernel = w.shape[2:]
    full = [
        (n - 1) * stride + dilation * (k - 1) + 1 + extra
        for n, k in zip(x.shape[2:], kernel, strict=True)
    ]
    outer, inner = w.shape[1], w.shape[0] // groups
    y = np.zeros((x.shape[0], outer * groups, *full), np.result_type(x, w))
    for group, tap in itertools.product(range(groups), np.ndindex(*kernel)):
        here = slice(group * inner, (group + 1) * inner)
        window = tuple(
            slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride)
            for t, n in zip(tap, x.shape[2:], strict=True)
        )
        part = np.tensordot(x[:, here], w[(here, slice(None), *tap)], ([1], [0]))
        place = (slice(None), slice(group * outer, (group + 1) * outer), *window)
        y[place] += np.moveaxis(part, -1, 1)
    crop = tuple(slice(padding, n - padding) for n in full)
    return y[(slice(None), slice(None), *crop)]


# input, weight, stride, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 3, 9), (4, 3, 3), 1, 0, 1, 1),
    ((2, 4, 9), (6, 2, 3), 2, 1, 2, 2),
    ((2, 3, 6, 7), (4, 3, 3, 2), 1, 1, 1, 1),
    ((1, 4, 7, 7), (4, 1, 3, 3), 2, 1, 1, 4),
    ((1, 2, 8, 8), (3, 2, 3, 3), 1, 2, 2, 1),
    ((1, 3, 5, 5), (2, 3, 1, 1), 1, 0, 1, 1),
    ((1, 2, 4, 4, 5), (3, 2, 2, 3, 2), 2, 1, 1, 1),
]


@pytest.mark.parametrize("dtype", [*FLOATS, dt.int32], ids=str)
def test_convolutions_agree_with_loops(dtype: DType, request: pytest.FixtureRequest) -> None:
    pairs = [
        (
            lambda x, w, s=(stride, padding, dilation, groups): (
                x.conv2d(w, None, *s)
                if x.ndim == 4
                else (x.conv1d if x.ndim == 3 else x.conv3d)(w, None, *s)
            ),
            lambda x, w, s=(stride, padding, dilation, groups): conv_by_loops(x, w, *s),
            [a, b],
        )
        for a, b, stride, padding, dilation, groups in CONVOLUTIONS
    ]
    compared(request, "conv", dtype, pairs, ulps=4)


# input, weight, stride, padding, dilation, groups, output padding
TRANSPOSED = [
    ((2, 3, 5), (3, 4, 3), 1, 0, 1, 1, 0),
    ((2, 4, 5), (4, 3, 3), 2, 1, 1, 2, 1),
    ((1, 3, 4, 5), (3, 2, 3, 2), 2, 1, 2, 1, 1),
    ((1, 2, 3, 3), (2, 1, 2, 2), 3, 0, 1, 1, 2),
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), 2, 0, 1, 1, 0),
]


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_transposed_convolutions_agree_with_loops(
    dtype: DType, request: pytest.FixtureRequest
) -> None:
    pairs = [
        (
            lambda x, w, s=(stride, padding, extra, groups, dilation): x.conv_transpose(
                w, None, *s
            ),
            lambda x, w, s=(stride, padding, dilation, groups, extra): transposed_by_loops(
                x, w, *s
            ),
            [a, b],
        )
        for a, b, stride, padding, dilation, groups, extra in TRANSPOSED
    ]
    compared(request, "conv_transpose", dtype, pairs, ulps=4)


def test_a_convolution_takes_a_bias_and_named_paddings() -> None:
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(1, 2, 6)), rng.normal(size=(3, 2, 4)), rng.normal(size=3)
    same = Tensor(x).conv1d(Tensor(w), Tensor(b), padding="same")
    assert same.shape == (1, 3, 6)
    theirs = conv_by_loops(np.pad(x, [(0, 0), (0, 0), (1, 2)]), w, 1, 0, 1, 1) + b[:, None]
    np.testing.assert_allclose(same.numpy(), theirs)
    assert Tensor(x).conv1d(Tensor(w), padding="valid").shape == (1, 3, 3)


def pooled(x: Array, kernel: int, stride: int, padding: int, fill: float, reduce: Any) -> Array:
    x = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2, constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))
    return np.asarray(reduce(view[:, :, ::stride, ::stride], (-2, -1)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pools_agree_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    pairs: list[Any] = []
    for kernel, stride, padding in [(2, 2, 0), (3, 2, 1), (3, 1, 0)]:
        setting = (kernel, stride, padding)
        pairs.append(
            (
                lambda x, s=setting: x.max_pool2d(*s),
                lambda x, s=setting: pooled(x, *s, -np.inf, np.max),
                [(2, 3, 6, 7)],
            )
        )
        pairs.append(
            (
                lambda x, s=setting: x.avg_pool2d(*s),
                lambda x, s=setting: pooled(x, *s, 0, np.mean),
                [(2, 3, 6, 7)],
            )
        )
    compared(request, "max_pool, avg_pool", dtype, pairs, ulps=4)


def test_partial_windows_and_uncounted_padding_agree_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is an oracle, not a requirement")
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 8))
    functional = torch.nn.functional
    for kernel, stride, padding in [(2, 2, 0), (3, 2, 1), (2, 3, 1), (3, 3, 1)]:
        theirs = functional.max_pool2d(torch.tensor(x), kernel, stride, padding, ceil_mode=True)
        ours = Tensor(x).max_pool2d(kernel, stride, padding, ceil_mode=True)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        for counted in (True, False):
            options = {"ceil_mode": True, "count_include_pad": counted}
            theirs = functional.avg_pool2d(torch.tensor(x), kernel, stride, padding, **options)
            ours = Tensor(x).avg_pool2d(kernel, stride, padding, **options)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    for size in (1, (7, 4), (3, 5)):
        theirs = functional.adaptive_avg_pool2d(torch.tensor(x), size)
        ours = Tensor(x).adaptive_avg_pool2d((size, size) if isinstance(size, int) else size)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    dilated = functional.max_pool1d(torch.tensor(x[0]), 3, 1, 1, 2)
    np.testing.assert_array_equal(Tensor(x[0]).max_pool(3, 1, 1, 2).numpy(), dilated.numpy())


def test_losses_agree_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is an oracle, not a requirement")
    rng = np.random.default_rng(0)
    functional = torch.nn.functional
    for shape in [(6, 5), (3, 5, 4), (5,)]:
        logits = rng.normal(size=shape)
        rows = shape[:1] + shape[2:] if len(shape) > 1 else ()
        labels = rng.integers(0, 5, rows)
        if rows:
            labels.flat[0] = -100
        for reduction in ("mean", "sum", "none"):
            for smoothing in (0.0, 0.1):
                options: Any = {"reduction": reduction, "label_smoothing": smoothing}
                ours = Tensor(logits).cross_entropy(Tensor(labels), **options)
                theirs = functional.cross_entropy(
                    torch.tensor(logits), torch.tensor(labels), **options
                )
                np.testing.assert_allclose(
                    ours.numpy(), theirs.numpy(), err_msg=str((shape, options))
                )
    soft = np.exp(logits) / np.exp(logits).sum()
    ours = Tensor(logits).cross_entropy(Tensor(soft), label_smoothing=0.2)
    theirs = functional.cross_entropy(torch.tensor(logits), torch.tensor(soft), label_smoothing=0.2)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
    x, w, b = rng.normal(size=(4, 3, 5)), rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    theirs = functional.layer_norm(torch.tensor(x), (3, 5), torch.tensor(w), torch.tensor(b))
    ours = Tensor(x).layer_norm((3, 5), Tensor(w), Tensor(b))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())
