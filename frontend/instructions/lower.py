"""Kernels to instructions: loops in order, the innermost tile written out, sums in registers.

The order of work inside one nest:

1. grid and sequential output loops (`rounds.py`), with staged copies before the loops they serve;
2. accumulators for every point of the tile (`folds.py`), carried by the reduction loops, or in
   memory where those stand outside output loops (`carried.py`);
3. the tile: unrolled and vector loops written out, each expression computed once for the points
   that share it (`points.py` enumerates, `values.py` computes, `loads.py` reads);
4. partial sums are combined; then the stores (`stores.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from frontend.instructions import indices, stores
from frontend.instructions.buffers import Buffers
from frontend.instructions.carried import Carried
from frontend.instructions.folds import Accumulators, Fold
from frontend.instructions.indices import Spot
from frontend.instructions.ir import BITS, Builder, Region, Value
from frontend.instructions.memory import compute_kind
from frontend.instructions.points import Piece, Point, points
from frontend.instructions.rounds import Opener, Round
from frontend.instructions.values import Values
from frontend.loops import expr as ex
from frontend.loops import limits, stages
from frontend.loops import nest as ln
from frontend.loops.index import Index, Var
from frontend.loops.machine import Machine

_TILE = (ln.Kind.UNROLL, ln.Kind.VECTOR)


def lower(kernel: ln.Kernel, machine: Machine) -> tuple[Region, int]:
    """The kernel's instructions and the number of its grid blocks.

    Raises ValueError for steps that break a rule.
    """
    b = Builder()
    opener, buffers = Opener(b), Buffers(b, kernel)
    outer = ln.apply(kernel.outer, (), kernel.outer_steps)
    if outer.stages:
        raise ValueError("the loops that nests share read nothing, so they stage nothing")

    def nests(around: Round, given: Mapping[str, int]) -> None:
        for nest in kernel.nests:
            _Nest(opener, buffers, machine, nest, outer.values).run(around, given)
            if len(kernel.nests) > 1:
                b.fence()

    def full_or_short(around: Round) -> None:
        if kernel.short is None:
            nests(around, {})
            return
        at = indices.scalar(b, outer.values[kernel.short.loop], around.env)
        last = b.const("i64", kernel.short.loop.extent - 1)
        with b.when(b.compare("icmp", "slt", at, last)):
            nests(around, {})
        with b.when(b.compare("icmp", "eq", at, last)):
            nests(around, {kernel.short.axis.name: kernel.short.extent})

    def open_from(at: int, around: Round) -> None:
        if at == len(outer.order):
            full_or_short(around)
            return
        opener.round(outer, outer.order[at], around, lambda inside: open_from(at + 1, inside))

    start = Round({}, {v.name: v.extent for v in kernel.outer})
    open_from(0, opener.grid(outer, start))
    return b.finish(), opener.blocks


class _Nest:
    """Lowers one nest. `outer`: the axes of the loops that are open already."""

    def __init__(
        self,
        opener: Opener,
        buffers: Buffers,
        machine: Machine,
        nest: ln.Nest,
        outer: Mapping[Var, Index],
    ) -> None:
        self.opener, self.buffers, self.machine = opener, buffers, machine
        self.b = opener.b
        self.source, self.outer = nest, outer
        self.loops = ln.apply(nest.axes, nest.reduce, nest.steps)
        stages.check(nest, self.loops, buffers.slots, outer)
        ln.check_carried(nest, self.loops)
        limits.check(nest, self.loops)
        order = self.loops.order
        self.tile_at = next((i for i, lo in enumerate(order) if lo.kind in _TILE), len(order))
        self.tile = order[self.tile_at :]
        self.scans_lanes = bool(nest.ordered) and any(lo.reduce for lo in self.tile)
        self.accumulators = Accumulators()
        self.carried: Carried | None = None
        self.panels: dict[ln.Stage, int] = {}
        self.staged: dict[ex.Load, ex.Load] = {}
        self._substitute()

    def _substitute(self) -> None:
        """Write the nest's expressions over its loops, reading what is staged from its copy."""
        rename = {**self.outer, **self.loops.values}
        change = ex.Substitution(rename, self.staged)

        def store(s: ln.Store) -> ln.Store:
            position = None if s.position is None else change(s.position)
            index = s.index.substitute(rename)
            return ln.Store(s.slot, index, change(s.value), s.add, s.var, position)

        self.folds = [
            Fold(self.b, r, change(r.value), None if r.axis is None else rename[r.axis])
            for r in self.source.reductions
        ]
        self.inner = [store(s) for s in self.source.inner]
        self.stores = [store(s) for s in self.source.stores]
        self.lanes = self._vector_lanes()

    def _vector_lanes(self) -> int:
        """Lanes of a full vector, by the widest element that differs from lane to lane."""
        vector = next((lo.var for lo in self.loops.order if lo.kind is ln.Kind.VECTOR), None)
        if vector is None:
            return 1
        roots = [fold.value for fold in self.folds]
        roots += [s.value for s in (*self.inner, *self.stores)]
        varying = [e.dtype for e in ex.walk(tuple(roots)) if vector in e.variables]
        bits = max((BITS[compute_kind(d)] for d in varying if d.kind != "b"), default=8)
        return self.machine.lanes(bits)

    # --- output loops ----------------------------------------------------------------------------

    def run(self, around: Round, given: Mapping[str, int] | None = None) -> None:
        """All rounds. `given`: the extents of axes that end before their own."""
        own = {v.name: v.extent for v in (*self.source.axes, *self.source.reduce)}
        own |= {name: extent for name, extent in (given or {}).items() if name in own}
        bounds = {
            axis.name: indices.scalar(self.b, bound.substitute(self.outer), around.env)
            for axis, bound in self.source.limits
        }
        start = Round(around.env, own, bounds)
        if any(lo.kind is ln.Kind.GRID for lo in self.loops.order):
            start = self.opener.grid(self.loops, start)
        self._outputs(0, start)

    def _outputs(self, at: int, around: Round) -> None:
        order = self.loops.order
        name = order[at].name if at < len(order) else ""
        for stage in self.loops.stages:
            if stage.at == name:
                self._stage(stage, around)
        if at == self.loops.body_at:
            self._body(at, around)
        elif order[at].reduce and self.carried is None:
            self._carry(at, around)
        else:
            self.opener.round(
                self.loops, order[at], around, lambda inside: self._outputs(at + 1, inside)
            )

    def _carry(self, at: int, around: Round) -> None:
        """A reduction loop outside output loops: the sums of their tiles wait in memory."""
        inside = [lo for lo in self.loops.order[at : self.loops.body_at] if not lo.reduce]
        carried = Carried(self.buffers, self.folds, inside, self.tile, self.lanes)

        def begin(tile: Round) -> None:
            self._start(tile.extents)
            carried.store(self.accumulators, tile.env)

        def end(tile: Round) -> None:
            self._start(tile.extents)
            carried.load(self.accumulators, tile.env)
            self._finish(tile)

        self._every_tile(inside, around, begin)
        self.carried = carried
        self.opener.round(
            self.loops, self.loops.order[at], around, lambda one: self._outputs(at + 1, one)
        )
        self.carried = None
        self._every_tile(inside, around, end)

    def _every_tile(
        self, loops: Sequence[ln.Loop], around: Round, body: Callable[[Round], None]
    ) -> None:
        if not loops:
            body(around)
            return
        first, *rest = loops
        self.opener.round(
            self.loops, first, around, lambda inside: self._every_tile(rest, inside, body)
        )

    def _stage(self, stage: ln.Stage, around: Round) -> None:
        """Copy what the loops inside read of one buffer, and read the copy from then on."""
        dtype = self.buffers.slots[stage.slot].dtype
        panel = self.panels.get(stage)
        if panel is None:
            size = stages.panel_size(stage, self.loops)
            panel = self.panels[stage] = self.buffers.add_scratch(dtype, size)
        copy = stages.copy_of(stage, self.source, self.loops, self.outer, around.extents, panel)
        self.b.fence()
        _Nest(self.opener, self.buffers, self.machine, copy.nest, {}).run(around)
        self.b.fence()
        self.staged |= copy.reads
        self._substitute()

    def _body(self, at: int, around: Round) -> None:
        if not self.source.reduce:
            values = self._values(self.tile, around)
            spots = [values.spot(p) for p in self._points(self.tile, around.extents)]
            self._store_all(values, self.stores, spots)
            return
        self._start(around.extents)
        self._reduce(at, around)
        if self.carried is not None:
            self.carried.add(self.accumulators, around.env)
        elif self.stores:
            self._finish(around)

    # --- reductions and tiles --------------------------------------------------------------------

    def _values(self, tile: Sequence[ln.Loop], around: Round) -> Values:
        ahead = self.loops.ahead_bytes
        return Values(self.buffers, self.machine, tile, around.env, around.extents, ahead)

    def _points(self, tile: Sequence[ln.Loop], extents: Mapping[str, int]) -> list[Point]:
        return points(self.loops, tile, dict(extents), self.lanes, masked=self.machine.masked)

    def _key(self, point: Point) -> Point:
        """A point without its active lanes: a shorter last round adds to the same accumulators."""
        if self.scans_lanes:  # one running value, whatever lanes the round has
            return tuple(c for lo, c in zip(self.tile, point, strict=True) if not lo.reduce)
        return tuple(Piece(c.start, c.lanes, c.lanes) if isinstance(c, Piece) else c for c in point)

    def _start(self, extents: Mapping[str, int]) -> None:
        self.accumulators = Accumulators()
        everywhere = [p for wide in self._variants(extents) for p in self._points(self.tile, wide)]
        for i, fold in enumerate(self.folds):
            for point in everywhere:
                lanes = next((c.lanes for c in point if isinstance(c, Piece)), 1)
                start = fold.start(1 if self.scans_lanes else lanes)
                self.accumulators.held[i, self._key(point)] = start

    def _variants(self, extents: Mapping[str, int]) -> list[dict[str, int]]:
        """The tile's extents in every round of the reduction loops, full or shorter."""
        variants = [dict(extents)]
        for loop in self.tile:
            if loop.reduce and loop.name not in extents:
                sizes = sorted(self._sizes(loop.name, extents), reverse=True)
                variants = [v | {loop.name: size} for v in variants for size in sizes]
        return variants

    def _sizes(self, name: str, extents: Mapping[str, int]) -> set[int]:
        """The extents that a loop, or what was split into loops, can have."""
        if name in extents:
            return {extents[name]}
        for whole, (outer, inner, factor) in self.loops.splits.items():
            if name in (outer, inner):
                sizes = self._sizes(whole, extents)
                if name == outer:
                    return {-(-size // factor) for size in sizes}
                full = {factor} if any(size >= factor for size in sizes) else set()
                return full | {size % factor for size in sizes if size % factor}
        return {self.loops.extent(name)}

    def _reduce(self, at: int, around: Round) -> None:
        """The reduction loops from number `at` on, then the tile."""
        if at == self.tile_at:
            self._update(around)
            return
        loop = self.loops.order[at]
        full, rest, inner, factor = around.counts(self.loops, loop)
        inside = around.running(inner, factor)
        if loop.kind is ln.Kind.CHAIN or full == 1:
            for i in range(full):
                self._round(at, inside.at(loop.var, i))
        elif full:
            zero, stop = self.b.const("i64", 0), around.needed(self.b, self.loops, loop, full)
            stop = stop or self.b.const("i64", full)
            with self.b.loop(zero, stop, 1, self.accumulators.flat()) as opened:
                self.accumulators.refill(opened.carried)
                self._round(at, inside.at(loop.var, opened.index))
                opened.next = self.accumulators.flat()
            self.accumulators.refill(opened.results)
        if rest:
            before = self.accumulators.flat()
            self._round(at, around.at(loop.var, full).running(inner, rest))
            reached = around.reaches(self.b, self.loops, loop, full)
            if reached is not None:
                after = self.accumulators.flat()
                chosen = [self.b.select(reached, x, y) for x, y in zip(after, before, strict=True)]
                self.accumulators.refill(chosen)

    def _round(self, at: int, around: Round) -> None:
        """One round of reduction loop number `at`."""
        if self.loops.order[at].kind is not ln.Kind.PART:
            self._reduce(at + 1, around)
            return
        held = self.accumulators.held
        before = dict(held)
        for (i, point), parts in before.items():
            held[i, point] = self.folds[i].start(parts[0].lanes)
        self._reduce(at + 1, around)
        for (i, point), parts in before.items():
            held[i, point] = self.folds[i].merged(parts, held[i, point])

    def _update(self, around: Round) -> None:
        """Fold every point of the tile."""
        values = self._values(self.tile, around)
        for point in self._points(self.tile, around.extents):
            spot = values.spot(point)
            running = [self._fold(i, fold, values, spot) for i, fold in enumerate(self.folds)]
            if self.inner:
                self._store_all(values, self.inner, [values.spot(point, running)])

    def _fold(self, number: int, fold: Fold, values: Values, spot: Spot) -> Value:
        """Fold one spot into its accumulator; the running value there."""
        key = (number, self._key(spot.point))
        old = self.accumulators.held[key]
        if self.scans_lanes:
            piece = next(c for c in spot.point if isinstance(c, Piece))
            running = fold.scan(old[0], self.b.splat(values.at(fold.value, spot), piece.lanes))
            self.accumulators.held[key] = (self.b.extract(running, piece.active - 1),)
            return running
        self.accumulators.held[key] = fold.add(values, self.tile, old, spot)
        return self.accumulators.held[key][0]

    def _finish(self, around: Round) -> None:
        """Combine what the tile held apart, then store."""
        groups: dict[tuple[int, Point], list[tuple[Value, ...]]] = {}
        for (i, point), parts in self.accumulators.held.items():
            kept = tuple(c for lo, c in zip(self.tile, point, strict=True) if not lo.reduce)
            groups.setdefault((i, kept), []).append(parts)
        across = any(lo.reduce and lo.kind is ln.Kind.VECTOR for lo in self.tile)
        combined = {
            (i, kept): self.folds[i].result(parts, across=across)
            for (i, kept), parts in groups.items()
        }
        outputs = [lo for lo in self.tile if not lo.reduce]
        values = self._values(outputs, around)
        for point in self._points(outputs, around.extents):
            key = self._key(point)
            spot = values.spot(point, [combined[i, key] for i in range(len(self.folds))])
            self._store_all(values, self.stores, [spot])

    # --- stores ----------------------------------------------------------------------------------

    def _store_all(self, values: Values, todo: Sequence[ln.Store], spots: Sequence[Spot]) -> None:
        """All values first, then all stores: loads of a tile are not held up by its stores."""
        if self.source.ordered or any(s.position is not None or s.add for s in todo):
            for spot in spots:
                for s in todo:
                    stores.store(values, s, spot, streaming=s.slot in self.loops.streams)
            return
        for s in todo:
            for spot in spots:
                values.at(s.value, spot)
        for s in todo:
            for spot in spots:
                stores.store(values, s, spot, streaming=s.slot in self.loops.streams)
