"""Products of tensors: matmul and its relatives, and einsum.

Each product is one form that the code generator knows: both operands repeated to a common shape,
MUL, then SUM over the contracted axes, which stand last. float16 and bfloat16 are multiplied and
summed in float32 and rounded once; integers keep their dtype and wrap, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import arithmetic, movement
from frontend.ops import common as c
from frontend.ops.common import Operand
from rawgpu.errors import AxisError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def contract(a: Node, b: Node, count: int, dtype: DType) -> Node:
    """SUM(MUL(a, b)) over the last `count` axes of two nodes of equal rank, broadcast."""
    shape = tuple(
        max(m, n) if 0 not in (m, n) else 0 for m, n in zip(a.shape, b.shape, strict=True)
    )
    wide = dt.accumulator(dtype)
    left, right = g.expand(g.cast(a, wide), shape), g.expand(g.cast(b, wide), shape)
    if wide is dt.bool_:
        product = g.binary(Op.AND, left, right)
        return g.reduce(Op.MAX, product, range(len(shape) - count, len(shape)))
    product = g.binary(Op.MUL, left, right)
    return g.cast(g.reduce(Op.SUM, product, range(len(shape) - count, len(shape))), dtype)


def _pair(name: str, x: Tensor, y: Operand) -> tuple[Node, Node, DType, Tensor]:
    other = c.as_tensor(y, x, name)
    c.same_device(name, x, other)
    a, b = c.widen_fp8(x.node), c.widen_fp8(other.node)
    dtype = arithmetic.common_dtype(name, a.dtype, b.dtype)
    return g.cast(a, dtype), g.cast(b, dtype), dtype, other


def matmul(x: Tensor, y: Operand) -> Tensor:
    """The matrix product (..., m, k) @ (..., k, n) -> (..., m, n).

    Leading axes broadcast. A vector on the left is a row, on the right a column, and that axis is
    gone from the result. Raises ShapeError for scalars and where the k extents differ.
    """
    a, b, dtype, other = _pair("matmul", x, y)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape}: a scalar has no axis to contract"
        )
    drop_row, drop_column = a.ndim == 1, b.ndim == 1
    a = g.reshape(a, (1, *a.shape)) if drop_row else a
    b = g.reshape(b, (*b.shape, 1)) if drop_column else b
    k, n = b.shape[-2:]
    m = a.shape[-2]
    if a.shape[-1] != k:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {other.shape}: the left one's last extent {a.shape[-1]} "
            f"is not the right one's {'only' if drop_column else 'second last'} extent {k}"
        )
    batch = c.broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    order = [*range(b.ndim - 2), b.ndim - 1, b.ndim - 2]
    a = g.reshape(a, (*(1,) * (len(batch) + 2 - a.ndim), *a.shape[:-2], m, 1, k))
    b = g.permute(b, order)
    b = g.reshape(b, (*(1,) * (len(batch) + 2 - b.ndim), *b.shape[:-2], 1, n, k))
    out = contract(a, b, 1, dtype)
    shape = batch + (() if drop_row else (m,)) + (() if drop_column else (n,))
    return x._derive(g.reshape(out, shape), other)


def rmatmul(x: Tensor, y: Operand) -> Tensor:
    """Y @ x."""
    return matmul(c.as_tensor(y, x, "matmul"), x)


def dot(x: Tensor, y: Operand) -> Tensor:
    """The sum of products of two vectors. Raises ShapeError for other shapes."""
    y = c.as_tensor(y, x, "dot")
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"dot: takes vectors, not {x.shape} and {y.shape}")
    return matmul(x, y)


def vecdot(x: Tensor, y: Operand, axis: int = -1) -> Tensor:
    """The sum over `axis` of x * y, broadcast."""
    y = c.as_tensor(y, x, "vecdot")
    return (x * y).sum(axis, dtype=arithmetic.common_dtype("vecdot", x.dtype, y.dtype))


def outer(x: Tensor, y: Operand) -> Tensor:
    """Every product of an element of x and one of y, both flattened: shape (x.size, y.size)."""
    y = c.as_tensor(y, x, "outer")
    return movement.reshape(x, x.size, 1) * movement.reshape(y, 1, y.size)


def trace(x: Tensor, offset: int = 0) -> Tensor:
    """The sum of the diagonals of the last two axes."""
    return movement.diagonal(x, offset).sum(-1)


def tensordot(
    x: Operand, y: Operand, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Contract x's last `axes` axes with y's first, or the two lists of axes named."""
    x, y = c.tensors("tensordot", [x, y])
    if not isinstance(axes, (tuple, list)):
        axes = c.whole("tensordot", "axes", axes)
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: {axes} axes of shapes {x.shape} and {y.shape}")
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        if len(axes) != 2:
            raise AxisError(f"tensordot: axes {c.shown(axes)} are not two lists of them")
        left = c.normal_axes("tensordot", _listed(axes[0]), x.ndim)
        right = c.normal_axes("tensordot", _listed(axes[1]), y.ndim)
    if len(left) != len(right) or [x.shape[i] for i in left] != [y.shape[i] for i in right]:
        raise ShapeError(
            f"tensordot: axes {left} of {x.shape} and {right} of {y.shape} differ in extent"
        )
    names = iter(range(x.ndim + y.ndim))
    on_x = [next(names) for _ in range(x.ndim)]
    on_y = [on_x[left[right.index(i)]] if i in right else next(names) for i in range(y.ndim)]
    out = [s for s in on_x if s not in [on_x[i] for i in left]]
    out += [s for i, s in enumerate(on_y) if i not in right]
    return _einsum([x, y], [on_x, on_y], out)


def _listed(axes: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)  # type: ignore[return-value]


def kron(x: Tensor, y: Operand) -> Tensor:
    """The Kronecker product of two tensors of the same rank."""
    y = c.as_tensor(y, x, "kron")
    if x.ndim != y.ndim:
        raise ShapeError(f"kron: ranks of {x.shape} and {y.shape} differ")
    wide_x = movement.reshape(x, tuple(n for extent in x.shape for n in (extent, 1)))
    wide_y = movement.reshape(y, tuple(n for extent in y.shape for n in (1, extent)))
    shape = tuple(m * n for m, n in zip(x.shape, y.shape, strict=True))
    return movement.reshape(wide_x * wide_y, shape)


# -- einsum

Labels = list[int]


def einsum(subscripts: str, *tensors: Operand) -> Tensor:
    """Einstein's sum: "ij,jk->ik".

    Any number of operands, repeated letters, and "..." for broadcast axes.

    Without "->" the result has the letters that occur once, in alphabetical order. Operands are
    contracted from left to right. Raises OperationError or ShapeError with the subscripts at fault.
    """
    if not isinstance(subscripts, str):
        raise OperationError(f"einsum: subscripts are text, not a {type(subscripts).__name__}")
    listed = c.tensors("einsum", tensors)
    inputs, output = _parse(subscripts, [t.ndim for t in listed])
    return _einsum(listed, inputs, output, subscripts)


def _parse(subscripts: str, ranks: list[int]) -> tuple[list[Labels], Labels]:
    """Letters become their code points, ellipsis axes negative numbers counted from the right."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise OperationError(
            f"einsum: {subscripts!r} names {len(terms)} operands and {len(ranks)} were given"
        )
    inputs = [_labels(subscripts, t, rank) for t, rank in zip(terms, ranks, strict=True)]
    dots = sorted({s for labels in inputs for s in labels if s < 0})
    if arrow:
        output = _letters(subscripts, right, dots)
        if unknown := [s for s in output if all(s not in labels for labels in inputs)]:
            raise OperationError(f"einsum: {subscripts!r}: no operand has {chr(unknown[0])!r}")
        if len(set(output)) != len(output):
            raise OperationError(f"einsum: {subscripts!r}: a letter occurs twice in the result")
        return inputs, output
    every = [s for labels in inputs for s in labels if s >= 0]
    return inputs, dots + sorted(s for s in set(every) if every.count(s) == 1)


def _labels(subscripts: str, term: str, rank: int) -> Labels:
    named = len(term.replace("...", ""))
    count = rank - named
    if count < 0 or (count > 0 and "..." not in term):
        raise ShapeError(f"einsum: {subscripts!r}: {term!r} does not name the {rank} axes")
    return _letters(subscripts, term, list(range(-count, 0)))


def _letters(subscripts: str, term: str, dots: Labels) -> Labels:
    before, ellipsis, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise OperationError(f"einsum: {subscripts!r}: {term!r} is not letters and one '...'")
    return [ord(s) for s in before] + (dots if ellipsis else []) + [ord(s) for s in after]


def _einsum(
    tensors: list[Tensor], inputs: list[Labels], output: Labels, subscripts: str = "tensordot"
) -> Tensor:
    c.same_device("einsum", *tensors)
    extents = _extents(tensors, inputs, subscripts)
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = arithmetic.common_dtype("einsum", dtype, tensor.dtype)
    dtype = dt.float32 if dtype in dt.FP8 else dtype
    operands = [
        _without_repeats(g.cast(t.node, dtype), labels)
        for t, labels in zip(tensors, inputs, strict=True)
    ]
    node, labels = operands[0]
    if len(operands) == 1:
        node, labels = _reduced(node, labels, output)
    for i, (other, names) in enumerate(operands[1:], 1):
        later = set(output).union(*(rest for _, rest in operands[i + 1 :]))
        node, labels = _product(node, labels, other, names, later, dtype)
    node = g.permute(node, [labels.index(s) for s in output])
    node = c.broadcast_to(node, tuple(extents[s] for s in output))
    return tensors[0]._derive(node, *tensors[1:])


def _extents(tensors: list[Tensor], inputs: list[Labels], subscripts: str) -> dict[int, int]:
    extents: dict[int, int] = {}
    for tensor, labels in zip(tensors, inputs, strict=True):
        for name, n in zip(labels, tensor.shape, strict=True):
            known = extents.setdefault(name, n)
            if known != n and 1 not in (known, n):
                axis = chr(name) if name >= 0 else "..."
                raise ShapeError(f"einsum: {subscripts!r}: {axis!r} has extents {known} and {n}")
            extents[name] = n if known == 1 else known
    return extents


def _without_repeats(node: Node, labels: Labels) -> tuple[Node, Labels]:
    """The diagonal in place of axes that have one letter, as in "ii"."""
    labels = list(labels)
    for name in set(labels):
        while labels.count(name) > 1:
            first = labels.index(name)
            second = labels.index(name, first + 1)
            order = [i for i in range(node.ndim) if i not in (first, second)]
            node = g.permute(node, [*order, first, second])
            n = node.shape[-1]
            assert node.shape[-2] == n, node
            node = g.reshape(node, (*node.shape[:-2], n * n))
            node = c.narrow(node, node.ndim - 1, 0, n, n + 1)
            labels = [labels[i] for i in order] + [name]
    return node, labels


def _reduced(node: Node, labels: Labels, keep: Labels) -> tuple[Node, Labels]:
    gone = [i for i, s in enumerate(labels) if s not in keep]
    return c.sum_of(node, gone), [s for s in labels if s in keep]


def _product(
    a: Node, a_labels: Labels, b: Node, b_labels: Labels, later: set[int], dtype: DType
) -> tuple[Node, Labels]:
    """a·b, summed over what neither the result nor a later operand has.

    Letters of one side go first.
    """
    a, a_labels = _reduced(a, a_labels, [*later, *b_labels])
    b, b_labels = _reduced(b, b_labels, [*later, *a_labels])
    shared = [s for s in a_labels if s in b_labels]
    batch = [s for s in shared if s in later]
    inner = [s for s in shared if s not in later]
    rows = [s for s in a_labels if s not in b_labels]
    columns = [s for s in b_labels if s not in a_labels]
    names = [*batch, *rows, *columns, *inner]
    a, b = _aligned(a, a_labels, names), _aligned(b, b_labels, names)
    return contract(a, b, len(inner), dtype), names[: len(names) - len(inner)]


def _aligned(node: Node, labels: Labels, names: Labels) -> Node:
    """Axes in the order of `names`, extent 1 where `labels` lacks one."""
    node = g.permute(node, [labels.index(s) for s in names if s in labels])
    extents = iter(node.shape)
    return g.reshape(node, tuple(next(extents) if s in labels else 1 for s in names))
