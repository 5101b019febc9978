"""Random numbers that depend on a seed and a counter, and on nothing else.

Element i of a draw is Threefry-2x32 (20 rounds) of the counter plus i under the seed's key, so bits
and uniform numbers are the same on every device, in whatever order it computes them, and normal
ones differ by rounding only. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
as 1, 2, 3", SC 2011.

Key and counter reach kernels in a small buffer, not as constants: drawing again runs the same
kernel. A recorded computation brings the buffer at each replay (`frontend/recorder.py`).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import dtype as dt
from frontend import tracing
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from frontend.ops import common as c
from frontend.ops import indexing, movement, reduce, sorting
from rawgpu.errors import DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
MASK = (1 << 64) - 1


class Generator:
    """A stream of random numbers: a key, and how many have been drawn."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = self.drawn = 0
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start over with this seed, of which 64 bits count. Raises OperationError for no int."""
        if not isinstance(seed, (int, np.integer)):
            raise OperationError(f"manual_seed: a seed is a whole number, not {c.shown(seed)}")
        if tracing.state.trace is not None:
            tracing.state.trace.seeded(self)
        self.seed = int(seed) & MASK
        self.drawn = 0
        return self

    def advance(self, count: int) -> None:
        """Leave out `count` numbers, as a replayed recording does that drew them."""
        self.drawn = (self.drawn + count) & MASK

    def state(self) -> np.ndarray[Any, Any]:
        """What kernels read: key and counter as uint64."""
        return np.array([self.seed, self.drawn], np.uint64)

    def take(self, count: int, device: str) -> tuple[Node, int]:
        """`count` counters: a uint64[2] node of key and base, and the first's distance from it."""
        if tracing.state.trace is not None:
            found = tracing.state.trace.draw(self, count, device)
            if found is not None:
                return found
        from frontend import engine

        node: Node = engine.from_host(self.state(), (2,), dt.uint64, device)
        self.advance(count)
        return node, 0


class _Default(threading.local):
    def __init__(self) -> None:
        self.generator = Generator()


_default = _Default()


def default_generator() -> Generator:
    """The calling thread's generator, which draws use that name no other."""
    return _default.generator


def manual_seed(seed: int) -> Generator:
    """Start the calling thread's generator over with `seed`, and return it."""
    return _default.generator.manual_seed(seed)


# -- bits


def threefry(key: tuple[Node, Node], counter: tuple[Node, Node]) -> tuple[Node, Node]:
    """Threefry-2x32-20: two uint32 words of key and counter to two words of chance."""
    x0, x1 = counter
    parity = g.binary(Op.XOR, g.binary(Op.XOR, key[0], key[1]), c.like(PARITY, key[0]))
    keys = (*key, parity)
    x0, x1 = g.binary(Op.ADD, x0, keys[0]), g.binary(Op.ADD, x1, keys[1])
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            x0 = g.binary(Op.ADD, x0, x1)
            x1 = g.binary(Op.XOR, _rotated(x1, rotation), x0)
        x0 = g.binary(Op.ADD, x0, keys[(block + 1) % 3])
        x1 = g.binary(Op.ADD, x1, keys[(block + 2) % 3])
        x1 = g.binary(Op.ADD, x1, c.like(block + 1, x1))
    return x0, x1


def _rotated(x: Node, by: int) -> Node:
    left, right = g.binary(Op.SHL, x, c.like(by, x)), g.binary(Op.SHR, x, c.like(32 - by, x))
    return g.binary(Op.OR, left, right)


def _words(count: int, device: str, generator: Generator | None) -> tuple[Node, Node]:
    """Two uint32 words of chance for each of `count` elements."""
    source = generator or default_generator()
    state, offset = source.take(count, device)
    shape = (count,)
    key = g.expand(c.narrow(state, 0, 0, 1), shape)
    counter = g.expand(c.narrow(state, 0, 1, 1), shape)
    counter = g.binary(Op.ADD, counter, g.cast(g.iota(shape, 0, dt.int64), dt.uint64))
    if offset:
        counter = g.binary(Op.ADD, counter, c.like(offset, counter))
    return threefry(_halves(key), _halves(counter))


def _halves(x: Node) -> tuple[Node, Node]:
    """The low and the high half of uint64."""
    high = g.binary(Op.SHR, x, c.like(32, x))
    return g.cast(g.binary(Op.AND, x, c.like(0xFFFF_FFFF, x)), dt.uint32), g.cast(high, dt.uint32)


def _word64(words: tuple[Node, Node]) -> Node:
    low, high = g.cast(words[0], dt.uint64), g.cast(words[1], dt.uint64)
    return g.binary(Op.OR, g.binary(Op.SHL, high, c.like(32, high)), low)


def _fraction(words: tuple[Node, Node], dtype: DType) -> Node:
    """Uniform in [0, 1): as many bits as the significand has, so that none rounds to 1."""
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    bits = _word64(words) if digits > 32 else words[0]
    bits = g.binary(Op.SHR, bits, c.like(bits.dtype.bits - digits, bits))
    wide = dt.float64 if digits > 32 else dt.float32
    whole = g.cast(bits, wide)
    return g.cast(g.binary(Op.MUL, whole, c.like(2.0**-digits, whole)), dtype)


def _drawn(node: Node, shape: Shape, device: str, requires_grad: bool) -> Tensor:
    tensor = c.new(g.reshape(node, shape), device)
    tensor.requires_grad = requires_grad
    return tensor


def _float(name: str, dtype: object | None) -> DType:
    kind = dt.chosen(dtype, dt.DEFAULT_FLOAT)
    c.needs_float(name, kind)
    if kind in dt.FP8:
        raise DTypeError(f"{name}: not in {kind}, which is for storage", hint="cast a float32 draw")
    return kind


# -- distributions


def rand(
    *shape: Any,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [0, 1), of `shape` given as numbers or one tuple."""
    return uniform(
        c.checked_shape("rand", shape), 0.0, 1.0, dtype, device, requires_grad, generator
    )


def uniform(
    shape: int | Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """low + u*(high - low) with u uniform in [0, 1)."""
    extents = c.checked_shape("uniform", (shape,))
    kind, where = _float("uniform", dtype), c.resolved_device(device)
    low, high = c.real("uniform", "low", low), c.real("uniform", "high", high)
    node = _fraction(_words(math.prod(extents), where, generator), kind)
    if high - low != 1.0:
        node = g.binary(Op.MUL, node, c.like(high - low, node))
    if low != 0.0:
        node = g.binary(Op.ADD, node, c.like(low, node))
    return _drawn(node, extents, where, requires_grad)


def randn(
    *shape: Any,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Standard normal numbers, by Box and Muller's method.

    A float32 is within 4 ulp of the exact value of its bits, and two devices differ by no more than
    their log, sin and sqrt do. Float16 and bfloat16 are rounded float32.
    """
    extents = c.checked_shape("randn", shape)
    kind, where = _float("randn", dtype), c.resolved_device(device)
    node = _normal(math.prod(extents), where, kind, generator)
    return _drawn(node, extents, where, requires_grad)


def normal(
    shape: int | Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: object | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """mean + std*z with z standard normal."""
    extents = c.checked_shape("normal", (shape,))
    kind, where = _float("normal", dtype), c.resolved_device(device)
    mean, std = c.real("normal", "the mean", mean), c.real("normal", "std", std)
    if std < 0:
        raise OperationError(f"normal: std, {std}, is negative")
    node = _normal(math.prod(extents), where, kind, generator)
    node = g.binary(Op.MUL, node, c.like(std, node))
    node = g.binary(Op.ADD, node, c.like(mean, node))
    return _drawn(node, extents, where, requires_grad)


def _normal(count: int, device: str, kind: DType, generator: Generator | None) -> Node:
    """sqrt(-2 log(1 - u)) * cos(2πv).

    The angle is reduced to a quarter turn as an integer: without error.
    """
    wide = dt.float64 if kind is dt.float64 else dt.float32
    words = _words(count, device, generator)
    if wide is dt.float64:
        first = _fraction(words, wide)
        bits = g.binary(
            Op.SHR, _word64(_words(count, device, generator)), c.full(11, (count,), dt.uint64)
        )
        digits = 53
    else:
        first = _fraction((words[1], words[1]), wide)
        bits = g.binary(Op.SHR, words[0], c.full(8, (count,), dt.uint32))
        digits = 24
    radius = g.binary(Op.SUB, c.like(1.0, first), first)
    radius = g.binary(Op.MUL, g.unary(Op.LOG, radius), c.like(-2.0, radius))
    radius = g.unary(Op.SQRT, radius)
    return g.cast(g.binary(Op.MUL, radius, _cosine_of_turn(bits, digits, wide)), kind)


def _cosine_of_turn(bits: Node, digits: int, wide: DType) -> Node:
    """cos(2π * bits / 2**digits) as ±sin of an angle in the first quarter."""
    quarter = 1 << (digits - 2)
    rest = g.binary(Op.AND, bits, c.like(quarter - 1, bits))
    turn = g.binary(Op.SHR, bits, c.like(digits - 2, bits))
    odd = g.binary(Op.NE, g.binary(Op.AND, turn, c.like(1, turn)), c.like(0, turn))
    part = g.where(odd, rest, g.binary(Op.SUB, c.like(quarter, rest), rest))
    angle = g.cast(part, wide)
    sine = g.unary(Op.SIN, g.binary(Op.MUL, angle, c.like(math.pi / 2 / quarter, angle)))
    half = g.binary(Op.XOR, turn, g.binary(Op.SHR, turn, c.like(1, turn)))
    minus = g.binary(Op.NE, g.binary(Op.AND, half, c.like(1, half)), c.like(0, half))
    return g.where(minus, g.unary(Op.NEG, sine), sine)


def randint(
    low: int,
    high: int,
    shape: int | Sequence[int],
    dtype: object | None = None,
    device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Whole numbers from `low` to below `high`: 64 random bits modulo the range."""
    extents = c.checked_shape("randint", (shape,))
    kind, where = dt.chosen(dtype, dt.DEFAULT_INT), c.resolved_device(device)
    c.needs_integer("randint", kind)
    for bound in (low, high):
        if not isinstance(bound, (int, np.integer)):
            raise OperationError(
                f"randint: low and high are whole numbers, not {c.shown(bound)}",
                hint="randint(low, high, shape)",
            )
    low, high = int(low), int(high)
    if low >= high or not (c.fits(low, kind) and c.fits(high - 1, kind)):
        raise OperationError(f"randint: no {kind} from {c.shown(low)} to below {c.shown(high)}")
    bits = _word64(_words(math.prod(extents), where, generator))
    if high - low <= MASK:
        bits = g.binary(Op.MOD, bits, c.like(high - low, bits))
    whole = g.binary(Op.ADD, bits, c.like(low, bits))  # wraps, and so is right for negative `low`
    return c.new(g.reshape(g.cast(whole, kind), extents), where)


def bernoulli(x: Tensor, generator: Generator | None = None) -> Tensor:
    """1 with the probability that x gives for each element, else 0, in x's dtype.

    What is known of x is checked: OperationError where an element is not between 0 and 1. In values
    that are still to be computed, less than 0 gives 0 and more than 1 gives 1.
    """
    c.needs_float("bernoulli", x.dtype)
    p = x.detach()
    if _is_known(x) and not bool(((p >= 0.0) & (p <= 1.0)).all()):
        raise OperationError("bernoulli: a probability is not between 0 and 1")
    draw = rand(x.shape, device=x.device, generator=generator)
    return (draw < x.detach()).astype(x.dtype)


def _is_known(x: Tensor) -> bool:
    """Whether looking at x computes nothing but the look."""
    if tracing.state.trace is not None:
        return False
    return x.node.storage is not None or x.node.op is Op.CONST


def dropout_mask(x: Tensor, rate: float, generator: Generator | None = None) -> Tensor:
    """True with probability 1 - rate for each element of x."""
    rate = c.probability("dropout", "the rate", rate)
    return rand(x.shape, device=x.device, generator=generator) >= rate


def dropout(x: Tensor, rate: float = 0.5, generator: Generator | None = None) -> Tensor:
    """x with a share `rate` of its elements zeroed and the others divided by 1 - rate."""
    rate = c.probability("dropout", "the rate", rate)
    if rate == 0:
        return x
    kept = dropout_mask(x, rate, generator)
    return kept.where(x / (1.0 - rate) if rate < 1 else x, 0.0)


def permutation(
    count: int, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers below `count` in random order, as int64."""
    count = c.extent("permutation", "the count", count)
    where = c.resolved_device(device)
    bits = c.new(_word64(_words(count, where, generator)), where)
    return sorting.argsort(bits, 0)


def shuffle(x: Tensor, axis: int = 0, generator: Generator | None = None) -> Tensor:
    """The slices along `axis` in random order."""
    axis = c.normal_axis("shuffle", axis, x.ndim)
    return indexing.take(x, permutation(x.shape[axis], x.device, generator), axis)


def multinomial(x: Tensor, count: int = 1, generator: Generator | None = None) -> Tensor:
    """`count` indices drawn with replacement for each row of weights (..., n), as int64.

    What is known of the weights is checked: OperationError for a negative one, or a row whose sum
    is not positive and finite. Weights that are still to be computed and break this rule give some
    index of their row.
    """
    count = c.extent("multinomial", "the count", count)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ShapeError(f"multinomial: {x.shape} has no weights to draw from")
    weights = x.detach().astype(dt.float32)
    running = reduce.cumsum(weights, -1)
    total = running[..., -1:]
    if _is_known(x):
        right = (weights >= 0.0).all() & ((total > 0.0) & total.isfinite()).all()
        if not bool(right):
            raise OperationError(
                "multinomial: weights are not negative, and each row has a positive, finite sum"
            )
    draw = rand((*x.shape[:-1], count), device=x.device, generator=generator) * total
    below = movement.expand_dims(running, -2) <= movement.expand_dims(draw, -1)
    chosen = below.sum(-1)
    return chosen.minimum(x.shape[-1] - 1)


def rand_like(x: Tensor) -> Tensor:
    """Uniform in [0, 1), of x's shape, dtype and device."""
    return rand(x.shape, dtype=x.dtype, device=x.device)


def randn_like(x: Tensor) -> Tensor:
    """Standard normal, of x's shape, dtype and device."""
    return randn(x.shape, dtype=x.dtype, device=x.device)
