"""What the model of the machine says of loads and stores."""

from __future__ import annotations

import math

from frontend import dtype as dt
from frontend.graph.node import Op
from frontend.loops import expr as ex
from frontend.loops import heuristic
from frontend.loops.index import Index, Var
from frontend.loops.lanes import lane_axis
from frontend.loops.machine import Machine
from frontend.loops.nest import Kernel, Kind, Mark, Nest, Reduction, Role, Slot, Store, apply

CPU = Machine(vector_bytes=64, registers=32, masked=True)
WAVE = Machine(block_lanes=32, masked=True)


def test_a_store_at_uneven_steps_costs_what_a_scatter_does() -> None:
    v = Var("i", 64)
    zero = ex.Constant(0.0, dt.float32)

    def cost(index: Index) -> float:
        return heuristic._store_cost([Store(0, index, zero)], v)

    uneven = Index.of(v) % 3 * 7 + Index.of(v) // 3
    assert uneven.coefficient(v) is None
    assert cost(uneven) == cost(Index.of(v) * 5) > cost(Index()) > cost(Index.of(v))


def test_reversed_neighbours_cost_a_load_and_a_shuffle() -> None:
    v = Var("i", 64)

    def cost(step: int, machine: Machine) -> float:
        return heuristic._load_cost(Index.of(v) * step + 63, v, machine)

    assert cost(1, CPU) < cost(-1, CPU) < cost(2, CPU) < cost(5, CPU)
    assert cost(-1, WAVE) == cost(5, WAVE)


def test_lanes_run_along_a_reversed_axis() -> None:
    """sum over k of b0[k, 63 - i]: lanes along i are loads and shuffles, along k gathers."""
    i, k = Var("i", 64), Var("k", 64)
    load = ex.Load(0, Index.of(k) * 65 + Index.of(i) * -1 + 63, dt.float32)
    store = Store(1, Index.of(i), ex.Accumulated(0, dt.float32))
    nest = Nest((i,), (k,), (Reduction(Op.SUM, load, dt.float32),), (store,))
    slots = (Slot(Role.INPUT, dt.float32, 64 * 65), Slot(Role.OUTPUT, dt.float32, 64))
    done = heuristic.schedule(Kernel("reversed", slots, (), (nest,)), CPU).nests[0]
    (lane,) = [s.loop for s in done.steps if isinstance(s, Mark) and s.kind is Kind.VECTOR]
    assert lane.startswith("i")


def test_the_grid_is_made_of_whole_loops_or_of_a_cut_one() -> None:
    axes = (Var("a", 8), Var("b", 100_000))
    store = Store(0, Index.of(axes[0]) * 100_000 + Index.of(axes[1]), ex.Constant(0.0, dt.float32))
    slots = (Slot(Role.OUTPUT, dt.float32, 800_000),)
    nest = heuristic.schedule(Kernel("fill", slots, (), (Nest(axes, stores=(store,)),)), CPU)
    loops = apply(axes, (), nest.nests[0].steps)
    grid = [lo.var.extent for lo in loops.order if lo.kind is Kind.GRID]
    assert grid == [8, 7]


def product(rows: int, columns: int, depth: int) -> dict[str, tuple[Kind, int]]:
    """The loops chosen for rows × depth times depth × columns, and how far they run."""
    i, j, k = Var("i", rows), Var("j", columns), Var("k", depth)
    left = ex.Load(0, Index.of(i) * depth + Index.of(k), dt.float32)
    right = ex.Load(1, Index.of(k) * columns + Index.of(j), dt.float32)
    value = ex.Alu(Op.MUL, (left, right), dt.float32)
    store = Store(2, Index.of(i) * columns + Index.of(j), ex.Accumulated(0, dt.float32))
    nest = Nest((i, j), (k,), (Reduction(Op.SUM, value, dt.float32),), (store,))
    sizes = (rows * depth, depth * columns, rows * columns)
    roles = (Role.INPUT, Role.INPUT, Role.OUTPUT)
    slots = tuple(Slot(r, dt.float32, n) for r, n in zip(roles, sizes, strict=True))
    (done,) = heuristic.schedule(Kernel("product", slots, (), (nest,)), CPU).nests
    order = apply(done.axes, done.reduce, done.steps).order
    return {lo.name: (lo.kind, lo.var.extent) for lo in order}


def test_a_few_rows_stream_a_large_matrix_in_long_pieces() -> None:
    """Rows of the matrix by the dozen, each along its whole length, as its pages follow."""
    for rows in (1, 4):
        loops = product(rows, 4096, 4096)
        names = list(loops)
        assert names[0].startswith("k/") and names[1] == "j/64", names
        assert loops["j%64"] == (Kind.VECTOR, 64)
        assert math.prod(n for name, (_, n) in loops.items() if name.startswith("k%")) * rows >= 32
    assert loops["i"] == (Kind.UNROLL, 4)


def test_a_product_bound_by_arithmetic_keeps_its_accumulators_in_registers() -> None:
    for rows, columns, depth in ((64, 2048, 2048), (4, 256, 256)):
        loops = product(rows, columns, depth).values()
        unrolled = [n for kind, n in loops if kind is Kind.UNROLL]
        (lanes,) = (n for kind, n in loops if kind is Kind.VECTOR)
        assert unrolled[0] * lanes // 16 <= CPU.registers


def window(rows: int, columns: int) -> Nest:
    """A convolution's loops: out[i, y, x] = sum over c, a, b of in[c, y+a, x+b] * w[i, c, a, b]."""
    i, y, x = Var("i", 16), Var("y", rows), Var("x", columns)
    c, a, b = Var("c", 8), Var("a", 3), Var("b", 3)
    at = Index.of(c) * 10_000 + (Index.of(y) + Index.of(a)) * 100 + Index.of(x) + Index.of(b)
    weight = Index.of(i) * 72 + Index.of(c) * 9 + Index.of(a) * 3 + Index.of(b)
    loads = (ex.Load(0, at, dt.float32), ex.Load(1, weight, dt.float32))
    where = (Index.of(i) * rows + Index.of(y)) * columns + Index.of(x)
    store = Store(2, where, ex.Accumulated(0, dt.float32))
    total = Reduction(Op.SUM, ex.Alu(Op.MUL, loads, dt.float32), dt.float32)
    return Nest((i, y, x), (c, a, b), (total,), (store,))


def test_short_axes_become_one_for_the_lanes_of_a_wave() -> None:
    nest, lane = lane_axis(window(8, 8), WAVE)
    assert (lane.name, lane.extent) == ("yx", 64)
    assert [v.name for v in nest.axes] == ["i", "yx"]
    (store,) = nest.stores
    assert store.index == Index.of(nest.axes[0]) * 64 + Index.of(lane)


def test_a_long_axis_of_neighbours_has_the_lanes_alone() -> None:
    nest = window(8, 64)
    assert lane_axis(nest, WAVE) == (nest, nest.axes[2])


def test_axes_put_together_name_the_same_places() -> None:
    before = window(8, 8)
    after, lane = lane_axis(before, WAVE)
    put = {before.axes[1]: Index.of(lane) // 8, before.axes[2]: Index.of(lane) % 8}
    assert [e.index for e in after.loads()] == [e.index.substitute(put) for e in before.loads()]
