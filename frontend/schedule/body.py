"""A node's value at one point, as an expression over its own axes.

Everything between a node and the nodes that are kept (`partition.py` decides which those are) is
inlined: index maps become index arithmetic, elementwise operations become expressions, and what is
kept appears as a `Ref` with its indices. Nothing is copied and nothing is computed here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontend.graph.node import ELEMENTWISE, REDUCE, Node, Op, const_value, number
from frontend.loops import expr as ex
from frontend.loops.expr import Expr
from frontend.loops.index import Condition, Divides, Index, InRange, Var, flatten, unflatten
from frontend.loops.nest import identity


class Ref(Expr):
    """Element `indices` of a kept node."""

    __slots__ = ("indices", "node")

    def __init__(self, node: Node, indices: tuple[Index, ...]) -> None:
        self.node, self.indices, self.dtype, self.depth = node, indices, node.dtype, 1
        self.variables = frozenset().union(*(i.variables() for i in indices))


@dataclass(eq=False)
class Body:
    """What a kept node computes.

    `axes`: a variable for each axis of the result. `reduce`: for each axis that is folded or
    scanned. `value`: what is folded, scanned, sorted or stored. `parts`: what CONCAT joins, or
    what SCATTER writes, each over its own axes.
    """

    node: Node
    axes: tuple[Var, ...]
    reduce: tuple[Var, ...]
    value: Expr
    parts: tuple[Part, ...] = ()
    after: Expr | None = None
    """For a fold: the result, in terms of `ex.Accumulated(0)`; None if it is the fold itself."""
    fold: Node | None = None
    """The reduction that is folded, where that is not `node`."""

    def absorb(self, other: Body, ref: Ref) -> Body:
        """This elementwise body with a fold done in place: `other`, read once, at `ref`."""
        bind = Bind(dict(zip(other.axes, ref.indices, strict=True)))
        done = ex.Accumulated(0, other.node.dtype)
        after = Put(ref, done if other.after is None else bind(other.after))(self.value)
        fold = other.fold or other.node
        return Body(self.node, self.axes, other.reduce, bind(other.value), (), after, fold)

    def refs(self) -> list[Ref]:
        roots = [self.value] if self.after is None else [self.value, self.after]
        for part in self.parts:
            roots += [part.value] if part.position is None else [part.value, part.position]
        return [e for e in ex.walk(tuple(roots)) if isinstance(e, Ref)]


@dataclass
class Part:
    """A piece of a result, at `offset` along the joined axis.

    With `position`, each element says for itself where on the axis it goes.
    """

    axes: tuple[Var, ...]
    value: Expr
    offset: int = 0
    position: Expr | None = None


class Bind(ex.Substitution):
    """Replaces variables in references to kept nodes too."""

    def _rebuild(self, e: Expr) -> Expr:
        if isinstance(e, Ref):
            return Ref(e.node, tuple(i.substitute(self.values) for i in e.indices))
        return super()._rebuild(e)


class Put(ex.Substitution):
    """Puts an expression in the place of a reference."""

    def __init__(self, ref: Ref, value: Expr) -> None:
        super().__init__({})
        self._ref, self._value = ref, value

    def _rebuild(self, e: Expr) -> Expr:
        if e is self._ref:
            return self._value
        return e if isinstance(e, Ref) else super()._rebuild(e)


_numbers = itertools.count()


class Expander:
    """Expands nodes to expressions; one for each body, so that shared parts stay shared."""

    def __init__(self, is_kept: Callable[[Node], bool]) -> None:
        self._is_kept = is_kept
        self._memo: dict[tuple[Node, tuple[Index, ...]], Expr] = {}
        self._lookups = 0
        self._bounds = 0

    def __call__(self, node: Node, indices: tuple[Index, ...]) -> Expr:
        key = (node, indices)
        found = self._memo.get(key)
        if found is None:
            if self._is_kept(node):
                found = Ref(node, indices)
            else:
                found = self.inside(node, indices)
            self._memo[key] = found
        return found

    def inside(self, node: Node, indices: tuple[Index, ...]) -> Expr:
        """The expression of a node that is itself not taken from memory."""
        op = node.op
        if op is Op.CONST:
            return ex.Constant(const_value(node), node.dtype)
        if op is Op.IOTA:
            return ex.IndexValue(indices[node.arg], node.dtype)
        if op in ELEMENTWISE:
            return ex.Alu(op, tuple(self(s, indices) for s in node.src), node.dtype)
        if op is Op.GATHER:
            return self._gather(node, indices)
        if op is Op.PAD:
            return self._pad(node, indices)
        source = node.src[0]
        if op is Op.SCATTER_WINDOW:
            return self._scatter_window(node, indices)
        moved = _MOVES[op](node, source, indices)
        return self(source, moved)

    def _gather(self, node: Node, indices: tuple[Index, ...]) -> Expr:
        data, index = node.src
        self._lookups += 1
        var = Var(f"at{self._lookups}", max(1, data.shape[node.arg]))
        if data.size == 0:
            return ex.Constant(0, node.dtype)
        moved = tuple(Index.of(var) if i == node.arg else x for i, x in enumerate(indices))
        return ex.Lookup(var, self(index, indices), self(data, moved))

    def _pad(self, node: Node, indices: tuple[Index, ...]) -> Expr:
        source = node.src[0]
        widths, fill = node.arg
        otherwise = ex.Constant(number(fill, node.dtype), node.dtype)
        if source.size == 0:
            return otherwise
        moved, conditions = [], list[Condition]()
        for x, n, (before, between, _) in zip(indices, source.shape, widths, strict=True):
            position = x - before
            step = between + 1
            conditions.append(InRange(position, (n - 1) * step + 1))
            if step > 1:
                conditions.append(Divides(position, step))
            moved.append(position // step)
        return self._under(tuple(conditions), source, moved, otherwise)

    def _under(
        self,
        conditions: tuple[Condition, ...],
        source: Node,
        indices: Sequence[Index],
        otherwise: Expr,
    ) -> Expr:
        """`source[indices]` where all conditions hold.

        There the indices lie within the source, whatever their expressions allow. While the source
        is expanded, a variable of the axis's extent stands for each, so that no division survives
        that only an index outside would need.
        """
        kept = tuple(c for c in conditions if not c.always)
        if not kept:
            return self(source, tuple(indices))
        stand_in: dict[Var, Index] = {}
        inside = []
        for x, n in zip(indices, source.shape, strict=True):
            if x.low < 0 or x.high >= n:
                self._bounds += 1
                var = Var(f"within{self._bounds}", n)
                stand_in[var] = x
                inside.append(Index.of(var))
            else:
                inside.append(x)
        value = Bind(stand_in)(self(source, tuple(inside)))
        return ex.Masked(kept, value, otherwise)

    def _scatter_window(self, node: Node, indices: tuple[Index, ...]) -> Expr:
        source = node.src[0]
        axis, window_axis, stride, dilation = node.arg
        zero = ex.Constant(0, node.dtype)
        if source.size == 0:
            return zero
        position = indices[axis] - indices[window_axis] * dilation
        round_ = position // stride
        conditions = (InRange(round_, source.shape[axis]), Divides(position, stride))
        moved = [round_ if i == axis else x for i, x in enumerate(indices)]
        return self._under(conditions, source, moved, zero)


def _reshape(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return unflatten(flatten(indices, node.shape), source.shape)


def _permute(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    moved = [Index()] * len(indices)
    for i, origin in enumerate(node.arg):
        moved[origin] = indices[i]
    return tuple(moved)


def _expand(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(Index() if n == 1 else x for x, n in zip(indices, source.shape, strict=True))


def _slice(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(x * step + first for x, (first, _, step) in zip(indices, node.arg, strict=True))


def _window(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    axis, window_axis, stride, dilation = node.arg
    moved = list(indices)
    moved[axis] = indices[axis] * stride + indices[window_axis] * dilation
    return tuple(moved)


def _same(node: Node, source: Node, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return indices


_MOVES: dict[Op, Callable[[Node, Node, tuple[Index, ...]], tuple[Index, ...]]] = {
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.SLICE: _slice,
    Op.WINDOW: _window,
    Op.DETACH: _same,
    Op.CONTIGUOUS: _same,
    Op.COPY: _same,
}


def body_of(node: Node, is_kept: Callable[[Node], bool]) -> Body:
    """The body of a kept node, over fresh axes."""
    serial = next(_numbers)

    def var(i: int, extent: int) -> Var:
        return Var(f"{serial}.{i}", extent)

    expander = Expander(is_kept)
    if node.op in REDUCE and node.src[0].size == 0:
        empty = ex.Constant(identity(node.op, node.dtype), node.dtype)
        return Body(node, tuple(var(i, n) for i, n in enumerate(node.shape)), (), empty)
    if node.op in REDUCE:
        source = node.src[0]
        every = tuple(var(i, n) for i, n in enumerate(source.shape))
        axes = tuple(v for i, v in enumerate(every) if i not in node.arg)
        reduce = tuple(v for i, v in enumerate(every) if i in node.arg)
        return Body(node, axes, reduce, expander(source, tuple(map(Index.of, every))))
    axes = tuple(var(i, n) for i, n in enumerate(node.shape))
    indices = tuple(map(Index.of, axes))
    if node.op is Op.SCAN:
        axis = node.arg[1]
        value = expander(node.src[0], indices)
        return Body(node, axes[:axis] + axes[axis + 1 :], (axes[axis],), value)
    if node.op is Op.CONCAT:
        return Body(
            node, axes, (), ex.Constant(0, node.dtype), _concat_parts(node, expander, serial)
        )
    if node.op is Op.SCATTER:
        _, index, updates = node.src
        own = tuple(Var(f"{serial}.u{i}", n) for i, n in enumerate(index.shape))
        at = tuple(map(Index.of, own))
        part = Part(own, expander(updates, at), position=expander(index, at))
        return Body(node, axes, (), expander(node.src[0], indices), (part,))
    if node.op in (Op.ARGSORT, Op.COPY):
        return Body(node, axes, (), expander(node.src[0], indices))
    return Body(node, axes, (), expander.inside(node, indices))


def _concat_parts(node: Node, expander: Expander, serial: int) -> tuple[Part, ...]:
    parts, offset = [], 0
    for at, source in enumerate(node.src):
        own = tuple(Var(f"{serial}.p{at}.{i}", n) for i, n in enumerate(source.shape))
        if source.size:
            parts.append(Part(own, expander(source, tuple(map(Index.of, own))), offset))
        offset += source.shape[node.arg]
    return tuple(parts)
