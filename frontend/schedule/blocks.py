"""Chains (`chains.py`) as kernels: their members run one after another over a block of rows.

    grid outer, block of 64 rows
      scores[k][row]  = sum over e of q[row, e] * k[k, e]
      top[row]        = max over k of scores
      scores[k][row]  = exp(scores - top);  total[row] += …
      out[row, d]     = (sum over k of scores[k][row] * v[k, d]) / total[row]

What a block keeps has its rows innermost: lanes run along them in every fold, and a product that
reads it finds the rows of its tile side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from frontend.graph.node import Node
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.expr import Expr
from frontend.loops.index import Index, Var, flatten, unflatten
from frontend.loops.simplify import simplify
from frontend.schedule.body import Body, Ref
from frontend.schedule.masks import bound_of
from frontend.schedule.slots import Rename, Slots, name_of, named, reduction_of, values_of


def blocks_kernel(
    members: Sequence[Body],
    rows: Sequence[int],
    block: int,
    external: Callable[[Node], bool],
) -> tuple[ln.Kernel, list[Node]]:
    """The kernel of a chain and the nodes behind its buffers.

    `rows`: the leading axes of all members; `block` of the last of them run together. `external`:
    whether a member's value is needed outside.
    """
    return _Blocks(members, tuple(rows), block, external).kernel()


@dataclass
class _Pending:
    """A nest to be."""

    axes: tuple[Var, ...]
    reduce: tuple[Var, ...] = ()
    reductions: list[ln.Reduction] = field(default_factory=list)
    stores: list[ln.Store] = field(default_factory=list)
    inner: list[ln.Store] = field(default_factory=list)
    columns: Var | None = None
    """The axis that all members share besides their rows."""


class _Blocks:
    def __init__(
        self,
        members: Sequence[Body],
        rows: tuple[int, ...],
        block: int,
        external: Callable[[Node], bool],
    ) -> None:
        self.members, self.shape, self.block, self.external = members, rows, block, external
        self.depth = len(rows)
        self.outer = Var("outer", math.prod(rows[:-1]))
        self.number = Var("block", -(-rows[-1] // block))
        self.row = Var("row", block)
        start = Index.of(self.number) * block
        self.rows = (*unflatten(Index.of(self.outer), rows[:-1]), start + Index.of(self.row))
        self.slots = Slots()
        self.place: dict[Node, int] = {}
        self.last_read = {ref.node: at for at, b in enumerate(members) for ref in b.refs()}
        self.nests: list[_Pending] = []

    def kernel(self) -> tuple[ln.Kernel, list[Node]]:
        at = 0
        while at < len(self.members):
            at += self._place(at)
        bound = self._bound()
        nests = tuple(self._nest(pending, bound) for pending in self.nests)
        rest = self.shape[-1] % self.block
        short = ln.Short(self.number, self.row, rest) if rest and self.number.extent > 1 else None
        outer = tuple(v for v in (self.outer, self.number) if v.extent > 1)
        words = [b.node.op.name.lower() for b in self.members if b.reduce]
        columns = [self.members[0].axes[-1].extent]
        name = name_of("blocks_" + "_".join(words), self.shape, columns)
        return ln.Kernel(name, tuple(self.slots.slots), outer, nests, (), short), self.slots.nodes

    def _bound(self) -> Index | None:
        if any(self.external(b.node) and len(b.axes) > self.depth for b in self.members[:-1]):
            return None
        last = Index.of(self.number) * self.block + (self.block - 1)
        return bound_of(self.members, self.depth, last)

    def _nest(self, p: _Pending, bound: Index | None) -> ln.Nest:
        whole = [self.row, *([p.columns] if p.columns is not None else [])]
        limits = ((p.columns, bound),) if p.columns is not None and bound is not None else ()
        nest = ln.Nest(p.axes, p.reduce, tuple(p.reductions), tuple(p.stores), tuple(p.inner))
        return simplify(
            ln.Nest(
                nest.axes, nest.reduce, nest.reductions, nest.stores, nest.inner,
                limits=limits, whole=tuple(whole),
            )
        )  # fmt: skip

    # --- members ---------------------------------------------------------------------------------

    def _place(self, at: int) -> int:
        """Nests for member number `at`, and for the one after it if both run together; how many."""
        body = self.members[at]
        after = self.members[at + 1] if at + 1 < len(self.members) else None
        if body.reduce and after is not None and self._finishes(after, body, at):
            self._fold(at, after)
            return 2
        if body.reduce:
            self._fold(at)
            return 1
        if after is not None and self._consumes(after, body):
            self._fold_of_map(at, after)
            return 2
        self._map(at)
        return 1

    def _finishes(self, after: Body, body: Body, at: int) -> bool:
        """Whether a map takes a fold's result at its own points, and nothing else does."""
        if after.reduce or after.node.shape != body.node.shape or self.external(body.node):
            return False
        alone = self.last_read.get(body.node) == at + 1 and body.after is None
        own = tuple(map(Index.of, after.axes))
        mine = [ref for ref in after.refs() if ref.node is body.node]
        return alone and bool(mine) and all(ref.indices == own for ref in mine)

    def _consumes(self, after: Body, body: Body) -> bool:
        """Whether a fold of rows takes a map's elements as they are made."""
        if not after.reduce or len(after.axes) != self.depth or len(body.axes) == self.depth:
            return False
        if [v.extent for v in after.reduce] != [v.extent for v in body.axes[self.depth :]]:
            return False
        own = tuple(map(Index.of, (*after.axes, *after.reduce)))
        mine = [ref for ref in after.refs() if ref.node is body.node]
        return bool(mine) and all(ref.indices == own for ref in mine)

    def _map(self, at: int) -> None:
        body = self.members[at]
        inner = named(body.axes[self.depth :], "i")
        value = self._rename(body, inner, ())(body.value)
        pending = _Pending((*inner, self.row), columns=inner[0] if inner else None)
        self.nests.append(pending)
        pending.stores.append(self._keep(at, inner, value))
        self._copy_out(body)

    def _fold(self, at: int, then: Body | None = None) -> None:
        """A fold; `then`: the map that is stored in place of its result."""
        body = self.members[at]
        inner, reduce = named(body.axes[self.depth :], "i"), named(body.reduce, "k")
        pending = _Pending((*inner, self.row), reduce)
        if at == 0:
            pending.columns = inner[0]
        else:
            pending.columns = reduce[0]
        rename = self._rename(body, inner, reduce)
        pending.reductions.append(reduction_of(body, rename(body.value), reduce))
        done: Expr = ex.Accumulated(0, body.node.dtype)
        if body.after is not None:
            done = rename(body.after)
        if then is not None:
            done = self._rename(then, inner, (), {body.node: done})(then.value)
            at += 1
        self.nests.append(pending)
        pending.stores.append(self._keep(at, inner, done))
        self._copy_out(self.members[at])

    def _fold_of_map(self, at: int, fold: Body) -> None:
        body = self.members[at]
        reduce = named(body.axes[self.depth :], "k")
        value = self._rename(body, reduce, ())(body.value)
        pending = _Pending((self.row,), reduce, columns=reduce[0])
        self.nests.append(pending)
        pending.inner.append(self._keep(at, reduce, value))
        folded = self._rename(fold, (), reduce, {body.node: value})(fold.value)
        pending.reductions.append(reduction_of(fold, folded, reduce))
        done = ex.Accumulated(0, fold.node.dtype)
        pending.stores.append(self._keep(at + 1, (), done))
        self._copy_out(body)
        self._copy_out(fold)

    # --- values ----------------------------------------------------------------------------------

    def _rename(
        self,
        body: Body,
        inner: Sequence[Var],
        reduce: Sequence[Var],
        live: Mapping[Node, Expr] | None = None,
    ) -> Rename:
        """`live`: members whose value at the same point is at hand."""
        values = dict(zip(body.axes[: self.depth], self.rows, strict=True))
        values |= values_of(body.axes[self.depth :], inner) | values_of(body.reduce, reduce)

        def inside(ref: Ref, indices: tuple[Index, ...]) -> Expr | None:
            if live is not None and ref.node in live:
                return live[ref.node]
            slot = self.place.get(ref.node)
            return None if slot is None else self._kept(slot, ref.node, indices[self.depth :])

        return Rename(values, self.slots, inside)

    def _kept(self, slot: int, node: Node, inner: Sequence[Index]) -> ex.Load:
        return ex.Load(slot, self._where(node, inner), node.dtype)

    def _where(self, node: Node, inner: Sequence[Index]) -> Index:
        return flatten(inner, node.shape[self.depth :]) * self.block + Index.of(self.row)

    def _keep(self, at: int, axes: Sequence[Var], value: Expr) -> ln.Store:
        """The store of a member's value: to the block's memory if later members read it."""
        node, inner = self.members[at].node, [Index.of(v) for v in axes]
        if self.last_read.get(node, -1) <= at:
            out = self.slots.outside(node, ln.Role.OUTPUT)
            return ln.Store(out, flatten([*self.rows, *inner], node.shape), value)
        slot = self._in_place(at)
        if slot is None:
            size = math.prod(node.shape[self.depth :]) * self.block
            slot = self.slots.local(ln.Role.SCRATCH, node.dtype, size)
        self.place[node] = slot
        return ln.Store(slot, self._where(node, inner), value)

    def _in_place(self, at: int) -> int | None:
        """The slot of what member `at`, a map, reads last and at its own points alone."""
        body = self.members[at]
        if body.reduce or len(body.axes) == self.depth:
            return None
        own = tuple(map(Index.of, body.axes))
        for ref in body.refs():
            slot = self.place.get(ref.node)
            if slot is None or self.last_read[ref.node] != at or ref.dtype != body.node.dtype:
                continue
            if ref.node.shape == body.node.shape and all(
                r.indices == own for r in body.refs() if r.node is ref.node
            ):
                return slot
        return None

    def _copy_out(self, body: Body) -> None:
        """Store what later members read, and others too, where those find it."""
        node = body.node
        if node not in self.place or not self.external(node):
            return
        axes = named(body.axes[self.depth :], "i")
        inner = [Index.of(v) for v in axes]
        out = self.slots.outside(node, ln.Role.OUTPUT)
        value = self._kept(self.place[node], node, inner)
        store = ln.Store(out, flatten([*self.rows, *inner], node.shape), value)
        self.nests.append(_Pending((self.row, *axes), stores=[store]))
