"""Random graphs whose right answer is known to the last bit, or to a bound.

A `Program` makes nodes through the constructors of `frontend/graph/node.py`, as a user's code would
through `Tensor`, but more wildly: chains of index maps, empty and single axes, shared parts,
several results. For each node it knows how large its values can be, on which grid of powers of two
they lie, and how far rounding may move them. Floats start as small multiples of 1/8, so most
programs are exact and compare equal whatever the order of a sum; operations that jump (comparisons,
floor, sorts, casts to integers) are only used on exact values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontend import dtype as dt
from frontend import engine
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from tests.frontend import reference

DEVICE = "cpu:0"
FLOATS = (dt.float32, dt.float32, dt.float32, dt.float64, dt.float16, dt.bfloat16)
INTEGERS = (
    dt.int64, dt.int32, dt.int32, dt.int16, dt.int8, dt.uint8, dt.uint16, dt.uint32, dt.uint64
)  # fmt: skip
MANTISSA = {
    "float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3": 4, "float8_e5m2": 3
}  # fmt: skip
SMALL = (1, 1, 2, 3, 4, 5, 7)
LARGE = (1, 2, 3, 8, 16, 17, 31, 33, 64, 65, 100, 130)
LARGEST = 240.0
"""Floats stay below this, which every float dtype can hold."""


@dataclass(frozen=True)
class Fact:
    """What is known of a node's values. `error` 0: exact, and multiples of 2**-grain."""

    bound: float
    grain: int = 0
    error: float = 0.0

    @property
    def exact(self) -> bool:
        return self.error == 0.0


class Program:
    """A pool of nodes that grows by random operations."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.facts: dict[Node, Fact] = {}
        self.pool: list[Node] = []
        self.large = self.rng.random() < 0.35
        self.limit = 200_000 if self.rng.random() < 0.08 else 20_000 if self.large else 600
        for _ in range(self.rng.randint(1, 3)):
            self.leaf(self.shape(), self.rng.choice((*FLOATS, *INTEGERS, dt.bool_)))

    def roots(self, steps: int) -> list[Node]:
        """Grow by about that many operations; one to four results."""
        for _ in range(steps):
            self.step()
        count = self.rng.choice((1, 1, 1, 2, 2, 3, 4))
        recent = [n for n in self.pool if n.op is not Op.BUFFER][-6:] or self.pool[-1:]
        return [recent[-1], *self.rng.choices(recent, k=count - 1)]

    # -- leaves and facts

    def extent(self) -> int:
        if self.rng.random() < 0.02:
            return 0
        return self.rng.choice(LARGE if self.large else SMALL)

    def shape(self) -> Shape:
        while True:
            shape = tuple(
                self.extent() for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))
            )
            if math.prod(shape) <= self.limit:
                return shape

    def leaf(self, shape: Shape, dtype: DType) -> Node:
        """Device memory with random values, or now and then something that needs none."""
        pick = self.rng.random()
        if pick < 0.08:
            return self.add(*self._constant(shape, dtype))
        if pick < 0.16 and shape and dtype.kind != "b":
            axis = self.rng.randrange(len(shape))
            top = max(shape[axis] - 1, 0)
            if top < 2 ** min(MANTISSA.get(dtype.name, dtype.bits - 1), 7):
                return self.add(g.iota(shape, axis, dtype), Fact(top))
        values, fact = self._values(shape, dtype)
        storage = reference.storage_of(values, dtype)
        return self.add(engine.from_host(storage, shape, dtype, DEVICE), fact)

    def _constant(self, shape: Shape, dtype: DType) -> tuple[Node, Fact]:
        value = self.rng.randint(-16, 16) / 8 if dtype.is_float else self.rng.randint(0, 3)
        return g.const(value, shape, dtype), Fact(abs(value), 3 if dtype.is_float else 0)

    def _values(self, shape: Shape, dtype: DType) -> tuple[Any, Fact]:
        if dtype.kind == "b":
            return self.numbers.integers(0, 2, shape).astype(bool), Fact(1)
        if dtype.is_float:
            return self.numbers.integers(-16, 17, shape) / 8, Fact(2.0, 3)
        low, high = (int(v) for v in dt.limits(dtype))
        if self.rng.random() < 0.3:
            kind: Any = dtype.numpy.type
            values = self.numbers.integers(low, high, shape, dtype=kind, endpoint=True)
            return values, Fact(float(max(high, -low)))
        return self.numbers.integers(max(low, -9), 10, shape), Fact(9)

    def add(self, node: Node, fact: Fact) -> Node:
        """Put a node in the pool with what follows for its dtype; if it grew, its clamped form."""
        fact = self._rounded(node.dtype, fact)
        fact = self.facts.setdefault(node, fact)
        if node.dtype.is_float and fact.bound > LARGEST:
            return self.clamp(node, 2.0 ** self.rng.randint(0, 3))
        if node not in self.pool:
            self.pool.append(node)
        return node

    def _rounded(self, dtype: DType, fact: Fact) -> Fact:
        """Integers wrap; floats that no longer fit their grid are rounded somewhere."""
        if not dtype.is_float:
            limit = 1.0 if dtype.kind == "b" else 2.0 ** (dtype.bits - (dtype.kind == "i"))
            return Fact(limit if fact.bound >= limit else fact.bound)
        bits = MANTISSA[dtype.name]
        if fact.exact and (fact.bound * 2.0**fact.grain > 2.0**bits or fact.grain > 12):
            return Fact(fact.bound, 0, fact.bound * 2.0**-bits)
        if not fact.exact:
            return Fact(fact.bound, 0, fact.error + fact.bound * 2.0 ** (1 - bits))
        return fact

    def clamp(self, x: Node, to: float) -> Node:
        """`x` between -to and to."""
        fact = self.facts[x]
        if fact.bound <= to:
            return x
        if not x.dtype.is_float:
            to = float(int(to))
        top = g.binary(Op.MINIMUM, x, g.const(to, x.shape, x.dtype))
        if x.dtype.kind != "u":
            top = g.binary(Op.MAXIMUM, top, g.const(-to, x.shape, x.dtype))
        return self.add(top, Fact(to, fact.grain, fact.error))

    # -- choosing

    def pick(self, accept: Callable[[Node], bool] = lambda node: True) -> Node | None:
        """A node that is acceptable; later ones are likelier."""
        fitting = [n for n in self.pool if accept(n)]
        if not fitting:
            return None
        return self.rng.choice(fitting[self.rng.choice((-1, -1, -2, -4, 0)) :])

    def float_(self, *, exact: bool = False) -> Node | None:
        return self.pick(lambda n: n.dtype.is_float and (self.facts[n].exact or not exact))

    def partner(self, x: Node) -> Node:
        """A node of x's shape and dtype: one that is there, a movement of one, or a new leaf."""
        other = self.pick(lambda n: n.shape == x.shape and n.dtype is x.dtype)
        if other is not None and self.rng.random() < 0.7:
            return other
        small = self.pick(lambda n: n.dtype is x.dtype and _broadcasts(n.shape, x.shape))
        if small is not None and self.rng.random() < 0.6:
            aligned = g.reshape(small, (1,) * (x.ndim - small.ndim) + small.shape)
            return self.add(g.expand(aligned, x.shape), self.facts[small])
        if self.rng.random() < 0.3:
            return self.add(*self._constant(x.shape, x.dtype))
        return self.leaf(x.shape, x.dtype)

    def step(self) -> None:
        """One operation, if it finds what it needs."""
        self.rng.choice(_STEPS)(self)

    # -- elementwise

    def unary(self) -> None:
        x = self.pick()
        if x is None:
            return
        fact = self.facts[x]
        if x.dtype.kind == "b":
            self.add(g.unary(Op.NOT, x), fact)
        elif x.dtype.is_integer:
            op = self.rng.choice((Op.NEG, Op.ABS, Op.NOT, Op.FLOOR))
            self.add(g.unary(op, x), Fact(2.0**x.dtype.bits if op is not Op.FLOOR else fact.bound))
        elif fact.exact and self.rng.random() < 0.6:
            op = self.rng.choice((Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND))
            self.add(g.unary(op, x), Fact(math.ceil(fact.bound)))
        else:
            self.add(g.unary(self.rng.choice((Op.NEG, Op.ABS)), x), fact)

    def smooth(self) -> None:
        """A function with a modest derivative, so that errors stay known."""
        x = self.float_()
        if x is None:
            return
        op = self.rng.choice((
            Op.SIN, Op.COS, Op.TANH, Op.EXP, Op.EXP2, Op.SQRT, Op.LOG, Op.LOG2, Op.ERF, Op.ATAN,
            Op.DIV, Op.LOG1P, Op.EXPM1, Op.SINH, Op.ASINH,
        ))  # fmt: skip
        x = self.clamp(x, 2.0)
        fact = self.facts[x]
        if op in (Op.SQRT, Op.LOG, Op.LOG2, Op.LOG1P, Op.DIV):
            x = g.binary(Op.ADD, g.unary(Op.ABS, x), g.const(1, x.shape, x.dtype))
            x = self.add(x, Fact(fact.bound + 1, fact.grain, fact.error))
            fact = self.facts[x]
        if op is Op.DIV:
            y = self.clamp(self.partner(x), 4.0)
            other = self.facts[y]
            error = other.error + other.bound * fact.error + 1e-30
            self.add(g.binary(Op.DIV, y, x), Fact(other.bound, 0, error))
            return
        slope = 8.0 if op in (Op.EXP, Op.EXP2, Op.EXPM1, Op.SINH) else 1.5
        self.add(g.unary(op, x), Fact(8.0, 0, slope * fact.error + 1e-30))

    def binary(self) -> None:
        x = self.pick()
        if x is None:
            return
        y = self.partner(x)
        if x.dtype.is_float:
            self._float_binary(x, y)
            return
        if x.dtype.kind == "b":
            op = self.rng.choice((Op.AND, Op.OR, Op.XOR, Op.MAXIMUM, Op.MINIMUM, Op.ADD, Op.MUL))
        else:
            op = self.rng.choice((
                Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MAXIMUM, Op.MINIMUM,
                Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR,
            ))  # fmt: skip
        bounded = op in (Op.MAXIMUM, Op.MINIMUM)
        bound = max(self.facts[x].bound, self.facts[y].bound) if bounded else 2.0**64
        self.add(g.binary(op, x, y), Fact(bound))

    def _float_binary(self, x: Node, y: Node) -> None:
        a, b = self.facts[x], self.facts[y]
        grain, error = max(a.grain, b.grain), max(a.error, b.error)
        op = self.rng.choice(
            (Op.ADD, Op.ADD, Op.SUB, Op.MUL, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.MOD)
        )
        if op is Op.MOD:
            self._divided(x, y)
        elif op in (Op.ADD, Op.SUB):
            self.add(g.binary(op, x, y), Fact(a.bound + b.bound, grain, a.error + b.error))
        elif op is Op.MUL:
            error = a.bound * b.error + b.bound * a.error
            self.add(g.binary(op, x, y), Fact(a.bound * b.bound, a.grain + b.grain, error))
        else:
            self.add(g.binary(op, x, y), Fact(max(a.bound, b.bound), grain, error))

    def _divided(self, x: Node, y: Node) -> None:
        a, b = self.facts[x], self.facts[y]
        if not (a.exact and b.exact):
            return
        y = g.binary(Op.MAXIMUM, g.unary(Op.ABS, y), g.const(1, y.shape, y.dtype))
        if self.rng.random() < 0.5:
            y = g.unary(Op.NEG, y)
        bound = max(b.bound, 1.0)
        if self.rng.random() < 0.5:
            self.add(g.binary(Op.MOD, x, y), Fact(bound, max(a.grain, b.grain)))
        else:
            self.add(g.binary(Op.FLOORDIV, x, y), Fact(math.ceil(a.bound) + 1))

    def compare(self) -> None:
        x = self.pick(lambda n: self.facts[n].exact)
        if x is None:
            return
        y = self.partner(x)
        if self.facts[y].exact:
            op = self.rng.choice((Op.LT, Op.LE, Op.EQ, Op.NE))
            self.add(g.binary(op, x, y), Fact(1))

    def where(self) -> None:
        condition = self.pick(lambda n: n.dtype.kind == "b")
        if condition is None:
            return
        x = self.pick(lambda n: n.shape == condition.shape)
        if x is None:
            return
        y = self.partner(x)
        a, b = self.facts[x], self.facts[y]
        fact = Fact(max(a.bound, b.bound), max(a.grain, b.grain), max(a.error, b.error))
        self.add(g.where(condition, x, y), fact)

    def cast(self) -> None:
        x = self.pick()
        if x is None:
            return
        target = self.rng.choice((*FLOATS, *INTEGERS, dt.bool_, *dt.FP8))
        if target.is_float:
            if self.facts[x].bound > LARGEST:
                x = self.clamp(x, 100.0)
            self.add(g.cast(x, target), self.facts[x])
        elif not x.dtype.is_float:
            self.add(g.cast(x, target), Fact(2.0**64))
        elif self.facts[x].exact:
            x = self.clamp(x, 100.0)
            if target.kind == "u":  # a negative float has no place there
                x = self.add(g.unary(Op.ABS, x), self.facts[x])
            self.add(g.cast(x, target), Fact(100.0))

    def bitcast(self) -> None:
        x = self.pick(lambda n: n.dtype.is_integer)
        if x is not None:
            other = ("u" if x.dtype.kind == "i" else "") + f"int{x.dtype.bits}"
            self.add(g.bitcast(x, dt.BY_NAME[other]), Fact(2.0**64))

    # -- movement

    def move(self) -> None:
        x = self.pick()
        if x is not None:
            for _ in range(self.rng.randint(1, 3)):
                x = self.rng.choice(_MOVES)(self, x)

    def reshape(self, x: Node) -> Node:
        factors = [f for n in x.shape for f in _factors(n)]
        self.rng.shuffle(factors)
        if 0 in x.shape:
            shape: list[int] = [0, *(n for n in x.shape if n)]
        else:
            shape = [1] * self.rng.randint(1, 4) if factors else [1] * self.rng.randint(0, 2)
            if self.rng.random() < 0.7:  # keep the order of factors: splits and merges of axes
                factors = [f for n in x.shape for f in _factors(n)]
            at = 0
            for f in factors:
                at = min(at + (self.rng.random() < 0.4), len(shape) - 1)
                shape[at] *= f
        return self.add(g.reshape(x, tuple(shape)), self.facts[x])

    def permute(self, x: Node) -> Node:
        order = list(range(x.ndim))
        self.rng.shuffle(order)
        return self.add(g.permute(x, order), self.facts[x])

    def expand(self, x: Node) -> Node:
        if x.ndim < 4 and self.rng.random() < 0.5:
            at = self.rng.randint(0, x.ndim)
            x = self.add(g.reshape(x, (*x.shape[:at], 1, *x.shape[at:])), self.facts[x])
        shape = tuple(self.extent() if n == 1 and self.rng.random() < 0.7 else n for n in x.shape)
        if math.prod(shape) > self.limit:
            return x
        return self.add(g.expand(x, shape), self.facts[x])

    def pad(self, x: Node) -> Node:
        def width() -> int:
            return self.rng.choice((0, 0, 1, 2, 3))

        widths = [(width(), self.rng.choice((0, 0, 0, 1, 2)), width()) for _ in x.shape]
        fill, known = self._constant((), x.dtype)
        size = math.prod(n * (w[1] + 1) + w[0] + w[2] for n, w in zip(x.shape, widths, strict=True))
        if size > self.limit:
            return x
        fact = self.facts[x]
        bound, grain = max(fact.bound, known.bound), max(fact.grain, known.grain)
        return self.add(g.pad(x, widths, fill), Fact(bound, grain, fact.error))

    def slice(self, x: Node) -> Node:
        ranges = []
        for n in x.shape:
            if n == 0 or self.rng.random() < 0.03:
                ranges.append((0, 0, 1))
                continue
            step = self.rng.choice((1, 1, 1, -1, -1, 2, -2, 3))
            first = self.rng.randrange(n)
            if self.rng.random() < 0.6:
                first = 0 if step > 0 else n - 1
            room = (n - 1 - first) // step if step > 0 else first // -step
            count = room + 1 if self.rng.random() < 0.6 else self.rng.randint(1, room + 1)
            ranges.append((first, count, step))
        return self.add(g.slice_(x, ranges), self.facts[x])

    def window(self, x: Node) -> Node:
        """Windows along an axis: the taps come from a fresh axis, as convolutions make them."""
        wide = [i for i, n in enumerate(x.shape) if n > 1]
        if not wide or x.ndim > 4:
            return x
        axis = self.rng.choice(wide)
        taps = self.rng.choice((1, 2, 2, 3, 3))
        stride, dilation = self.rng.choice((1, 1, 2, 3)), self.rng.choice((1, 1, 2))
        n = x.shape[axis]
        count = (n - (taps - 1) * dilation - 1) // stride + 1
        if count < 1 or x.size * taps > self.limit:
            return x
        more = g.expand(g.reshape(x, (*x.shape, 1)), (*x.shape, taps))
        return self.add(g.window(more, axis, x.ndim, stride, dilation, count), self.facts[x])

    def scatter_window(self, x: Node) -> Node:
        if x.ndim < 2 or x.dtype.kind == "b":
            return x
        axis, window_axis = self.rng.sample(range(x.ndim), 2)
        stride, dilation = self.rng.choice((1, 2, 3)), self.rng.choice((1, 1, 2))
        reach = max(0, (x.shape[axis] - 1) * stride + (x.shape[window_axis] - 1) * dilation + 1)
        extent = max(0, reach + self.rng.choice((0, 0, 1, -1)))
        if extent * x.size // max(1, x.shape[axis]) > self.limit:
            return x
        made = g.scatter_window(x, axis, window_axis, stride, dilation, extent)
        return self.add(made, self.facts[x])

    def contiguous(self, x: Node) -> Node:
        make = self.rng.choice((g.contiguous, g.detach))
        return self.add(make(x), self.facts[x])

    # -- folds

    def reduce(self) -> None:
        x = self.pick()
        if x is None:
            return
        axes = [i for i in range(x.ndim) if self.rng.random() < 0.5]
        op = self.rng.choice((Op.SUM, Op.SUM, Op.SUM, Op.MAX, Op.MIN, Op.PROD))
        self.fold(op, x, axes)

    def fold(self, op: Op, x: Node, axes: Sequence[int]) -> Node:
        count = math.prod(x.shape[i] for i in axes)
        if not axes or (count == 0 and op in (Op.MAX, Op.MIN) and x.dtype.is_float):
            return x  # infinities are another test's business
        fact = self.facts[x]
        if op is Op.PROD and x.dtype.is_float:
            if count > 6 or not fact.exact:
                return x
            x = self.clamp(x, 2.0)
            fact = self.facts[x]
            grain = fact.grain * max(count, 1)
            return self.add(g.reduce(op, x, axes), Fact(max(1.0, fact.bound**count), grain))
        if op in (Op.SUM, Op.PROD):
            total = Fact(fact.bound * count, fact.grain, fact.error * count)
            if (
                x.dtype.is_float
                and count * fact.bound * 2.0**fact.grain > 2.0 ** MANTISSA[x.dtype.name]
            ):
                error = count * (fact.error + fact.bound * 2.0 ** -MANTISSA[x.dtype.name])
                total = Fact(fact.bound * count, 0, error)
            return self.add(g.reduce(op, x, axes), total if x.dtype.is_float else Fact(2.0**64))
        bound = fact.bound if count else 2.0**64
        return self.add(g.reduce(op, x, axes), Fact(bound, fact.grain, fact.error))

    def arg(self) -> None:
        x = self.pick(lambda n: self.facts[n].exact and any(n.shape))
        if x is None:
            return
        axis = self.rng.choice([i for i, n in enumerate(x.shape) if n])
        op = self.rng.choice((Op.ARGMAX, Op.ARGMIN))
        self.add(g.reduce(op, x, (axis,)), Fact(x.shape[axis]))

    def scan(self) -> None:
        x = self.pick(lambda n: n.ndim > 0)
        if x is None:
            return
        axis = self.rng.randrange(x.ndim)
        count = x.shape[axis]
        fact = self.facts[x]
        kind = self.rng.choice((Op.SUM, Op.SUM, Op.PROD, Op.MAX, Op.MIN))
        if kind in (Op.MAX, Op.MIN):
            self.add(g.scan(kind, x, axis), fact)
        elif not x.dtype.is_float:
            self.add(g.scan(kind, x, axis), Fact(2.0**64))
        elif kind is Op.SUM:
            bits = MANTISSA[x.dtype.name]
            error = count * fact.error
            if count * fact.bound * 2.0**fact.grain > 2.0**bits:
                error = count * (fact.error + count * fact.bound * 2.0**-bits)
            bound = max(1, count) * fact.bound
            self.add(g.scan(kind, x, axis), Fact(bound, fact.grain, error))
        elif fact.exact and count <= 4:
            x = self.clamp(x, 2.0)
            fact = self.facts[x]
            bound = max(fact.bound, fact.bound**count)
            self.add(g.scan(kind, x, axis), Fact(bound, fact.grain * max(1, count)))

    def contract(self) -> None:
        """A product summed over an axis, as matmul makes it, operands turned or not."""
        x = self.pick(lambda n: n.dtype.is_float and n.ndim >= 2)
        if x is None:
            return
        x = self.clamp(x, 4.0)
        *batch, m, k = x.shape
        n = self.extent()
        if math.prod(batch) * m * n * k > 20 * self.limit:
            return
        turned = self.rng.random() < 0.4
        y = self.leaf((*batch, n, k) if turned else (*batch, k, n), x.dtype)
        if not turned:
            y = g.permute(y, (*range(len(batch)), y.ndim - 1, y.ndim - 2))
        if self.rng.random() < 0.3:
            x = self.add(g.unary(Op.ABS, x), self.facts[x])
        a = g.expand(g.reshape(x, (*batch, m, 1, k)), (*batch, m, n, k))
        b = g.expand(g.reshape(y, (*batch, 1, n, k)), (*batch, m, n, k))
        product = g.binary(Op.MUL, a, b)
        fact = self.facts[x]
        self.facts[product] = self._rounded(
            x.dtype, Fact(2 * fact.bound, fact.grain + 3, 2 * fact.error)
        )
        self.fold(Op.SUM, product, (product.ndim - 1,))

    def convolve(self) -> None:
        """Windows times weights summed over taps and channels."""
        x = self.pick(lambda n: n.dtype.is_float and n.ndim == 3 and 0 not in n.shape)
        if x is None:
            return
        x = self.clamp(x, 4.0)
        batch, into, n = x.shape
        out, taps = self.rng.choice((1, 2, 5, 16)), self.rng.choice((1, 2, 3))
        stride, dilation = self.rng.choice((1, 1, 2)), self.rng.choice((1, 1, 2))
        if self.rng.random() < 0.5:
            zero = g.const(0, (), x.dtype)
            x = self.add(g.pad(x, ((0, 0, 0), (0, 0, 0), (1, 0, 1)), zero), self.facts[x])
            n = x.shape[-1]
        count = (n - (taps - 1) * dilation - 1) // stride + 1
        if count < 1 or batch * into * out * count * taps > 20 * self.limit:
            return
        fact = self.facts[x]
        shape = (batch, out, into, n, taps)
        wide = g.expand(g.reshape(x, (batch, 1, into, n, 1)), shape)
        seen = g.window(wide, 3, 4, stride, dilation, count)
        weight = self.leaf((out, into, taps), x.dtype)
        weight = g.expand(g.reshape(weight, (1, out, into, 1, taps)), seen.shape)
        product = g.binary(Op.MUL, seen, weight)
        self.facts[product] = self._rounded(
            x.dtype, Fact(2 * fact.bound, fact.grain + 3, 2 * fact.error)
        )
        self.fold(Op.SUM, product, (2, 4))

    def softmax(self) -> None:
        """Rows as softmax and normalisations have them: folds and maps that read each other."""
        x = self.pick(lambda n: n.dtype.is_float and n.ndim >= 1 and 0 not in n.shape)
        if x is None or x.dtype.bits < 32:
            return
        x = self.clamp(x, 2.0)
        axis = self.rng.choice((x.ndim - 1, x.ndim - 1, self.rng.randrange(x.ndim)))
        kept = tuple(1 if i == axis else n for i, n in enumerate(x.shape))

        def back(folded: Node) -> Node:
            return g.expand(g.reshape(folded, kept), x.shape)

        fact = self.facts[x]
        apart = g.binary(Op.SUB, x, back(g.reduce(Op.MAX, x, (axis,))))
        power = g.unary(Op.EXP, apart)
        total = g.reduce(Op.SUM, power, (axis,))
        error = 8 * fact.error + 2.0 ** (6 - MANTISSA[x.dtype.name])
        if self.rng.random() < 0.3:
            log = g.binary(Op.SUB, apart, back(g.unary(Op.LOG, total)))
            self.add(log, Fact(16.0, 0, 4 * error))
        else:
            self.add(g.binary(Op.DIV, power, back(total)), Fact(1.0, 0, error))

    # -- selection and order

    def concat(self) -> None:
        x = self.pick(lambda n: n.ndim > 0)
        if x is None:
            return
        axis = self.rng.randrange(x.ndim)
        parts = [x]
        for _ in range(self.rng.randint(1, 3)):
            like = tuple(self.extent() if i == axis else n for i, n in enumerate(x.shape))
            other = self.pick(
                lambda n: (
                    n.dtype is x.dtype
                    and n.ndim == x.ndim
                    and all(
                        i == axis or a == b
                        for i, (a, b) in enumerate(zip(n.shape, x.shape, strict=True))
                    )
                )
            )
            parts.append(other if other and self.rng.random() < 0.6 else self.leaf(like, x.dtype))
        if sum(p.size for p in parts) > self.limit:
            return
        facts = [self.facts[p] for p in parts]
        fact = Fact(
            max(f.bound for f in facts), max(f.grain for f in facts), max(f.error for f in facts)
        )
        self.rng.shuffle(parts)
        self.add(g.concat(parts, axis), fact)

    def _index(self, shape: Shape, extent: int) -> Node:
        """Positions, some of them outside; from memory or computed."""
        dtype = self.rng.choice((dt.int64, dt.int32, dt.int32, dt.int16, dt.uint8))
        low = 0 if dtype.kind == "u" or self.rng.random() < 0.5 else -2
        high = extent if self.rng.random() < 0.5 else extent + 2
        high = min(max(high, low + 1), 120)
        values = self.numbers.integers(low, high, shape).astype(dtype.numpy)
        node = self.add(engine.from_host(values, shape, dtype, DEVICE), Fact(high + 2))
        if self.rng.random() < 0.3 and dtype.kind == "i":
            node = g.binary(Op.SUB, g.const(extent - 1, shape, dtype), node)
            node = self.add(node, Fact(2.0 * high))
        return node

    def gather(self) -> None:
        x = self.pick(lambda n: n.ndim > 0)
        if x is None:
            return
        axis = self.rng.randrange(x.ndim)
        shape = tuple(self.extent() if i == axis else n for i, n in enumerate(x.shape))
        if math.prod(shape) > self.limit:
            return
        if self.rng.random() < 0.4:  # whole rows: the index is the same off the axis
            row = self._index((shape[axis],), x.shape[axis])
            index = g.reshape(row, tuple(n if i == axis else 1 for i, n in enumerate(shape)))
            index = g.expand(index, shape)
        else:
            index = self._index(shape, x.shape[axis])
        self.add(g.gather(x, index, axis), self.facts[x])

    def scatter(self) -> None:
        x = self.pick(lambda n: n.ndim > 0)
        if x is None:
            return
        axis = self.rng.randrange(x.ndim)
        shape = tuple(self.extent() if i == axis else n for i, n in enumerate(x.shape))
        if math.prod(shape) > self.limit:
            return
        add = x.dtype.kind != "b" and self.rng.random() < 0.5
        index = self._index(shape, x.shape[axis])
        updates = self.pick(lambda n: n.shape == shape and n.dtype is x.dtype)
        updates = updates or self.leaf(shape, x.dtype)
        a, b = self.facts[x], self.facts[updates]
        grain = max(a.grain, b.grain)
        made = g.scatter(x, index, updates, axis, add=add)
        if not add:
            fact = Fact(max(a.bound, b.bound), grain, max(a.error, b.error))
        elif x.dtype.is_float:
            count = shape[axis]
            bound = a.bound + count * b.bound
            error = a.error + count * b.error
            bits = MANTISSA[x.dtype.name]
            if error or bound * 2.0**grain > 2.0**bits:
                error += (count + 1) * bound * 2.0**-bits
            fact = Fact(bound, grain, error)
        else:
            fact = Fact(2.0**64)
        self.add(made, fact)

    def sort(self) -> None:
        x = self.pick(lambda n: n.ndim > 0 and self.facts[n].exact)
        if x is None:
            return
        axis = self.rng.randrange(x.ndim)
        order = g.argsort(x, axis, descending=self.rng.random() < 0.5)
        self.add(order, Fact(max(1, x.shape[axis])))
        if self.rng.random() < 0.6:
            self.add(g.gather(x, order, axis), self.facts[x])


def _broadcasts(shape: Shape, to: Shape) -> bool:
    if len(shape) > len(to):
        return False
    return all(a in (b, 1) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _factors(n: int) -> list[int]:
    found, by = [], 2
    while n > 1:
        while n % by == 0:
            found.append(by)
            n //= by
        by += 1
    return found


_STEPS: tuple[Callable[[Program], None], ...] = (
    *(Program.unary,) * 2,
    *(Program.binary,) * 5,
    *(Program.smooth,) * 3,
    *(Program.move,) * 6,
    *(Program.reduce,) * 4,
    *(Program.compare,) * 2,
    *(Program.where,) * 2,
    *(Program.cast,) * 3,
    Program.bitcast,
    Program.arg,
    *(Program.scan,) * 2,
    *(Program.contract,) * 3,
    *(Program.convolve,) * 2,
    *(Program.softmax,) * 2,
    *(Program.concat,) * 2,
    *(Program.gather,) * 2,
    *(Program.scatter,) * 2,
    Program.sort,
)
_MOVES: tuple[Callable[[Program, Node], Node], ...] = (
    *(Program.reshape,) * 3,
    *(Program.permute,) * 3,
    *(Program.expand,) * 2,
    Program.pad,
    *(Program.slice,) * 2,
    Program.window,
    Program.scatter_window,
    Program.contiguous,
)


def wrong(node: Node, expected: Any, fact: Fact) -> str | None:
    """What is wrong with the realised `node`; None if it is within its error."""
    got = reference.from_storage(np.asarray(engine.to_host(node)), node.dtype)
    if got.shape != expected.shape:
        return f"shape {got.shape}, not {expected.shape}"
    if not node.dtype.is_float:
        bad = got != expected
    else:
        ours, theirs = got.astype(np.float64), expected.astype(np.float64)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):
            bad = ~(same | (np.abs(ours - theirs) <= 4 * fact.error))
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{int(bad.sum())} of {bad.size} elements wrong, allowed error {fact.error:.3g}; "
        f"at {list(at)}: got {got[at]!r}, expected {expected[at]!r}"
    )


def describe(roots: Sequence[Node]) -> str:
    """The graph as lines of text."""
    order = g.topological(roots)
    number = {node: i for i, node in enumerate(order)}
    lines = []
    for node in order:
        sources = " ".join(f"%{number[s]}" for s in node.src if s in number)
        lines.append(f"  %{number[node]} = {node!r} {sources}")
    return "\n".join([*lines, "  roots " + " ".join(f"%{number[r]}" for r in roots)])
