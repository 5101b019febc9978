"""Movement, indexing, assignment and order against NumPy, for every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend import Tensor, concat, meshgrid, stack
from frontend import dtype as dt
from frontend.dtype import DType
from rawgpu.errors import OperationError
from tests.frontend import cells
from tests.frontend.cells import Array

SHAPE = (3, 4, 5)

Pair = tuple[Callable[[Tensor], Tensor], Callable[[Array], Any]]

MOVES: dict[str, Pair] = {
    "reshape": (lambda t: t.reshape(5, -1), lambda a: a.reshape(5, -1)),
    "permute": (lambda t: t.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "T": (lambda t: t.T, lambda a: a.T),
    "swapaxes": (lambda t: t.swapaxes(0, 2), lambda a: a.swapaxes(0, 2)),
    "moveaxis": (lambda t: t.moveaxis((0, 1), (1, 2)), lambda a: np.moveaxis(a, (0, 1), (1, 2))),
    "mT": (lambda t: t.mT, lambda a: a.swapaxes(-1, -2)),
    "expand": (
        lambda t: t.expand_dims(1).expand(3, 2, 4, -1),
        lambda a: np.broadcast_to(a[:, None], (3, 2, 4, 5)),
    ),
    "flip": (lambda t: t.flip((0, 2)), lambda a: np.flip(a, (0, 2))),
    "roll": (lambda t: t.roll((1, -2), (0, 2)), lambda a: np.roll(a, (1, -2), (0, 2))),
    "roll flat": (lambda t: t.roll(7), lambda a: np.roll(a, 7)),
    "tile": (lambda t: t.tile(2, 1, 3), lambda a: np.tile(a, (2, 1, 3))),
    "repeat": (lambda t: t.repeat(3, 1), lambda a: np.repeat(a, 3, 1)),
    "concat": (lambda t: concat([t, t[:, 1:]], 1), lambda a: np.concatenate([a, a[:, 1:]], 1)),
    "stack": (lambda t: stack([t, t.flip(0)], -1), lambda a: np.stack([a, a[::-1]], -1)),
    "split": (lambda t: concat(t.split(2, 2)[::-1], 2), lambda a: a[..., [4, 2, 3, 0, 1]]),
    "pad": (lambda t: t.pad([(1, 2), (0, 1)]), lambda a: np.pad(a, [(0, 0), (1, 2), (0, 1)])),
    "pad reflect": (
        lambda t: t.pad([(3, 1)], "reflect"),
        lambda a: np.pad(a, [(0, 0), (0, 0), (3, 1)], "reflect"),
    ),
    "pad edge": (
        lambda t: t.pad([(3, 7)], "replicate"),
        lambda a: np.pad(a, [(0, 0), (0, 0), (3, 7)], "edge"),
    ),
    "pad wrap": (
        lambda t: t.pad([(5, 1)], "circular"),
        lambda a: np.pad(a, [(0, 0), (0, 0), (5, 1)], "wrap"),
    ),
    "crop": (
        lambda t: t.pad([(-1, 1), (2, -3)]),
        lambda a: np.pad(a[:, 1:, :2], [(0, 0), (0, 1), (2, 0)]),
    ),
    "tril": (lambda t: t.tril(1), lambda a: np.tril(a, 1)),
    "triu": (lambda t: t.triu(-1), lambda a: np.triu(a, -1)),
    "diagonal": (lambda t: t.diagonal(1), lambda a: np.diagonal(a, 1, -2, -1)),
    "diag": (lambda t: t[0, 0].diag(), lambda a: np.diag(a[0, 0])),
    "slices": (lambda t: t[::-1, 1:3, ::2], lambda a: a[::-1, 1:3, ::2]),
    "integers": (lambda t: t[1, ..., -2], lambda a: a[1, ..., -2]),
    "new axes": (lambda t: t[:, None, ..., None], lambda a: a[:, None, ..., None]),
    "empty slice": (lambda t: t[2:1], lambda a: a[2:1]),
    "list": (lambda t: t[[2, 0, -1]], lambda a: a[[2, 0, -1]]),
    "lists": (lambda t: t[[0, 2], :, [[1], [-1]]], lambda a: a[[0, 2], :, [[1], [-1]]]),
    "lists in the middle": (
        lambda t: t[:, [3, 1], [0, -1]],
        lambda a: a[:, [3, 1], [0, -1]],
    ),
    "number beside a list": (lambda t: t[0, :, [4, 4]], lambda a: a[0, :, [4, 4]]),
    "list and slice": (lambda t: t[::2, [1, 1, 2], ::-1], lambda a: a[::2, [1, 1, 2], ::-1]),
    "list and new axis": (lambda t: t[None, [0, 1], None], lambda a: a[None, [0, 1], None]),
    "tensor index": (lambda t: t[:, Tensor([-1, 2])], lambda a: a[:, [-1, 2]]),
    "take": (lambda t: t.take([[0, 5], [59, -1]]), lambda a: np.take(a, [[0, 5], [59, -1]])),
    "take_along_axis": (
        lambda t: t.take_along_axis(Tensor([[[3], [0]]]), 1),
        lambda a: np.take_along_axis(a, np.array([[[3], [0]]]), 1),
    ),
    "mask": (lambda t: t[_mask()], lambda a: a[_mask()]),
    "mask after": (lambda t: t[..., [True, False, True, True, False]], lambda a: a[..., [0, 2, 3]]),
}


def _mask() -> Array:
    return (np.arange(12).reshape(3, 4) * 7) % 5 < 2


def _assign(key: Any, value: Any) -> Pair:
    def ours(t: Tensor) -> Tensor:
        t[key] = value if not isinstance(value, np.ndarray) else Tensor(value)
        return t

    def theirs(a: Array) -> Array:
        a[key] = value
        return a

    return ours, theirs


ASSIGNMENTS: dict[str, Pair] = {
    "one element": _assign((1, 2, 3), 1),
    "slice": _assign((slice(None, None, 2), slice(3, 0, -1)), np.arange(5)),
    "all": _assign(..., 1),
    "empty": _assign(slice(2, 2), 1),
    "list": _assign([0, 2], np.arange(20).reshape(4, 5)),
    "lists": _assign((slice(None), [0, 3], [1, -1]), np.arange(6).reshape(3, 2)),
    "duplicates": _assign(([0, 0, 1],), np.arange(15).reshape(3, 1, 5)),
    "mask": _assign(_mask(), 1),
    "mask of values": _assign(_mask(), np.arange(5)),
}


def check(dtype: DType, pairs: dict[str, Pair], rng: np.random.Generator) -> None:
    array = cells.draw(rng, SHAPE, dtype, special=True)
    results = {name: ours(Tensor(array)) for name, (ours, _) in pairs.items()}
    first, *rest = results.values()
    first.realize(*rest)
    for name, result in results.items():
        theirs = np.asarray(pairs[name][1](array.copy()))
        assert result.dtype is dtype, name
        np.testing.assert_array_equal(result.numpy(), theirs.astype(result.numpy().dtype), name)


@pytest.mark.parametrize("dtype", cells.EVERYTHING, ids=str)
@pytest.mark.parametrize("pairs", [MOVES, ASSIGNMENTS], ids=["moves", "assignments"])
def test_moving_elements_agrees_with_numpy(
    pairs: dict[str, Pair], dtype: DType, request: pytest.FixtureRequest
) -> None:
    for number in range(cells.EXAMPLES):
        check(dtype, pairs, np.random.default_rng(number))
    kind = "assign " if pairs is ASSIGNMENTS else ""
    for name in pairs:
        request.node.user_properties.append((f"cell {kind}{name} {dtype}", cells.EXAMPLES))


@pytest.mark.parametrize("dtype", cells.EVERYTHING, ids=str)
def test_sorting_agrees_with_numpy(dtype: DType, request: pytest.FixtureRequest) -> None:
    for number in range(cells.EXAMPLES):
        array = cells.draw(np.random.default_rng(number), (4, 9), dtype, special=True)
        wide = array.astype(np.float64) if dtype.is_float else array
        t = Tensor(array)
        up, order, down = t.sort(), t.argsort(0), t.sort(descending=True)
        best, places = t.topk(3)
        up.realize(order, down, best, places)
        np.testing.assert_array_equal(up.numpy(), np.sort(wide))
        np.testing.assert_array_equal(order.numpy(), np.argsort(wide, 0, kind="stable"))
        backwards = np.sort(wide)[:, ::-1]
        if dtype.is_float:  # NaN last in this direction as well
            backwards = -np.sort(-wide)
        np.testing.assert_array_equal(down.numpy(), backwards)
        np.testing.assert_array_equal(best.numpy(), backwards[:, :3])
        np.testing.assert_array_equal(np.take_along_axis(wide, places.numpy(), 1), backwards[:, :3])
    for name in ("sort", "argsort", "topk"):
        request.node.user_properties.append((f"cell {name} {dtype}", cells.EXAMPLES))


def test_equal_elements_keep_their_order_in_both_directions() -> None:
    x = Tensor([1, 0, 1, 0, 1])
    assert x.argsort().tolist() == [1, 3, 0, 2, 4]
    assert x.argsort(descending=True).tolist() == [0, 2, 4, 1, 3]


def test_unique_searchsorted_and_counts_agree_with_numpy() -> None:
    x = np.array([[3, 1, 3], [2, 1, 3]])
    ours = Tensor(x).unique()
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(ours.values.numpy(), values)
    np.testing.assert_array_equal(ours.inverse.numpy(), inverse.reshape(x.shape))
    np.testing.assert_array_equal(ours.counts.numpy(), counts)
    edges, wanted = np.array([1.0, 2.0, 2.0, 5.0]), np.array([0.0, 1.0, 2.0, 3.0, 5.0, 6.0])
    for side in ("left", "right"):
        got = Tensor(edges).searchsorted(Tensor(wanted), side=side)
        np.testing.assert_array_equal(got.numpy(), np.searchsorted(edges, wanted, side))
    assert Tensor([1, 3, 1]).bincount().tolist() == [0, 2, 0, 1]
    assert Tensor([1, 3, 9]).bincount(Tensor([0.5, 1.0, 2.0]), 4).tolist() == [0, 0.5, 0, 1.0]


def test_quantiles_agree_with_numpy() -> None:
    x = np.random.default_rng(1).normal(size=(4, 7))
    for q in (0.0, 0.3, 0.5, 1.0):
        np.testing.assert_allclose(Tensor(x).quantile(q, 1).numpy(), np.quantile(x, q, 1))
    np.testing.assert_allclose(Tensor(x).median().numpy(), np.median(x))
    assert np.isnan(Tensor([1.0, np.nan, 0.0]).median().item())


def test_scatter_and_gather_follow_their_definitions() -> None:
    x = Tensor.zeros(3, 4)
    index = Tensor([[0, 1, 2], [2, 1, 0]])
    source = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert x.scatter(0, index, source).tolist() == [[1, 0, 6, 0], [0, 5, 0, 0], [4, 0, 3, 0]]
    assert x.scatter_add(0, index, source).tolist() == [[1, 0, 6, 0], [0, 7, 0, 0], [4, 0, 3, 0]]
    assert source.gather(1, Tensor([[2, 0]])).tolist() == [[3, 1]]
    grown = x.index_add(1, Tensor([3, 3]), Tensor.ones(3, 2))
    assert grown.tolist() == [[0, 0, 0, 2]] * 3


def test_indices_in_a_tensor_read_zero_and_write_nothing_outside() -> None:
    x = Tensor([[1, 2], [3, 4]])
    assert x[Tensor([0, 5, -3])].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert x[Tensor([0, 1]), Tensor([5, 1])].tolist() == [0, 4]
    x[Tensor([1, 7])] = 9
    assert x.tolist() == [[1, 2], [9, 9]]


def test_nonzero_and_masked_select_agree_with_numpy() -> None:
    x = np.array([[0, 3, 0], [1, 0, 2]])
    for ours, theirs in zip(Tensor(x).nonzero(), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert Tensor(x).masked_select(Tensor(x) > 1).tolist() == [3, 2]
    assert Tensor(x)[Tensor(x) > 9].shape == (0,)


def test_meshgrid_agrees_with_numpy() -> None:
    a, b = np.arange(3), np.arange(4)
    for indexing in ("xy", "ij"):
        ours = meshgrid(Tensor(a), Tensor(b), indexing=indexing)
        for mine, theirs in zip(ours, np.meshgrid(a, b, indexing=indexing), strict=True):
            np.testing.assert_array_equal(mine.numpy(), theirs)


def test_movement_of_scalars_and_empty_tensors() -> None:
    assert Tensor(3.0).reshape(1, 1).tolist() == [[3.0]]
    assert Tensor(3.0).flatten().shape == (1,)
    assert Tensor(3.0)[None, ...].shape == (1,)
    empty = Tensor.zeros(0, 3)
    assert empty.reshape(3, 0).flip(0).permute().numpy().shape == (0, 3)
    assert concat([empty, Tensor.ones(2, 3)]).tolist() == [[1, 1, 1]] * 2
    assert empty.pad([(1, 1), (0, 0)]).tolist() == [[0, 0, 0]] * 2
    assert empty[:, 1].shape == (0,)
    assert empty.sort(0).numpy().shape == (0, 3)
    assert [t.shape for t in Tensor.zeros(5).chunk(2)] == [(3,), (2,)]


def test_slices_of_every_kind_agree_with_numpy() -> None:
    """Any start, stop and step; evaluated by NumPy, or each would be a kernel to build."""
    bounds = st.one_of(st.none(), st.integers(-7, 7))
    steps = st.one_of(st.none(), st.integers(-4, 4).filter(bool))
    array = np.arange(30).reshape(5, 6)
    tensor = Tensor(array)
    from tests.frontend.reference import evaluate

    @settings(max_examples=300, deadline=None)
    @given(st.builds(slice, bounds, bounds, steps), st.builds(slice, bounds, bounds, steps))
    def examine(first: slice, second: slice) -> None:
        np.testing.assert_array_equal(evaluate(tensor[first, second].node), array[first, second])
        ours, theirs = Tensor(array), array.copy()
        ours[first, second] = 7
        theirs[first, second] = 7
        np.testing.assert_array_equal(evaluate(ours.node), theirs)

    examine()


INDEX_ITEMS = st.one_of(
    st.integers(-3, 2),
    st.just(slice(None)),
    st.builds(slice, st.integers(-3, 3), st.none(), st.sampled_from([None, -1, 2])),
    st.none(),
    st.just(Ellipsis),
    st.lists(st.integers(-3, 2), min_size=2, max_size=2),
    st.just([[0], [1], [-1]]),
    st.just(np.array([True, False, True])),
)


def test_indices_of_every_kind_agree_with_numpy() -> None:
    """Any mixture of integers, slices, None, `...`, lists and masks, read and written."""
    array = np.arange(81).reshape(3, 3, 3, 3)
    from tests.frontend.reference import evaluate

    @settings(max_examples=400, deadline=None)
    @given(st.lists(INDEX_ITEMS, min_size=1, max_size=5))
    def examine(items: list[Any]) -> None:
        key = tuple(items)
        try:
            theirs = array[key]
        except IndexError:
            with pytest.raises(OperationError):
                Tensor(array)[key]
            return
        np.testing.assert_array_equal(evaluate(Tensor(array)[key].node), theirs)
        ours, changed = Tensor(array), array.copy()
        ours[key] = 5
        changed[key] = 5
        np.testing.assert_array_equal(evaluate(ours.node), changed)

    examine()


def test_a_view_never_aliases() -> None:
    x = Tensor([1, 2, 3, 4])
    view = x[1:3]
    view[0] = 9
    assert (x.tolist(), view.tolist()) == ([1, 2, 3, 4], [9, 3])
    x[:] = 0
    assert (x.tolist(), view.tolist()) == ([0, 0, 0, 0], [9, 3])
    y = x
    y += 1
    assert x.tolist() == [1, 1, 1, 1], "x and y are one object"
    assert dt.int64 is x.dtype
