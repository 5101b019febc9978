"""Reverse-mode differentiation, from graph to graph.

`gradients` walks a graph backwards once and adds to it the nodes of the derivative; so the
derivative has a derivative too. `RULES` says what each operation does to the gradient that reaches
it: given the node and its gradient, one gradient for each source, or None where there is none (an
index, a condition, a step function). Operations without a rule stop the walk, as do DETACH and
every dtype but floats.

Where a function has a kink: |x| has slope 0 at 0; maximum, minimum and the max and min reductions
share the gradient evenly among equals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from frontend import dtype as dt
from frontend.graph import node as g
from frontend.graph.node import Node, Op

Grads = tuple[Node | None, ...]
Rule = Callable[[Node, Node], Grads]


def gradients(output: Node, seed: Node, targets: Sequence[Node]) -> list[Node | None]:
    """d(sum(output * seed)) / d(target) for each target.

    None where no differentiable path leads to it.

    `seed` has output's shape and dtype.
    """
    assert seed.shape == output.shape and seed.dtype is output.dtype, (output, seed)
    wanted = set(targets)
    order = differentiable(output)
    needed: set[Node] = set()
    for node in order:
        if node in wanted or any(s in needed for s in sources(node)):
            needed.add(node)
    grads: dict[Node, Node] = {}
    if output in needed:
        grads[output] = seed
    for node in reversed(order):
        grad = grads.get(node)
        if grad is None or not any(s in needed for s in sources(node)):
            continue
        if node not in wanted:
            del grads[node]
        for source, part in zip(node.src, RULES[node.op](node, grad), strict=True):
            if part is not None and source in needed:
                assert part.shape == source.shape and part.dtype is source.dtype, (
                    node,
                    source,
                    part,
                )
                before = grads.get(source)
                grads[source] = part if before is None else g.binary(Op.ADD, before, part)
    return [grads.get(target) for target in targets]


def sources(node: Node) -> tuple[Node, ...]:
    """The sources a gradient may flow to."""
    if node.op not in RULES:
        return ()
    return tuple(s for s in node.src if s.dtype.is_float)


def differentiable(output: Node) -> list[Node]:
    """The nodes that a gradient from `output` may reach, sources first.

    Iterative: graphs are deep.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(output, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in seen and node.dtype.is_float:
            seen.add(node)
            stack.append((node, True))
            stack.extend((s, False) for s in reversed(sources(node)) if s not in seen)
    return order


# -- words for the rules


def _c(value: float, like: Node) -> Node:
    return g.const(value, like.shape, like.dtype)


def _add(a: Node, b: Node) -> Node:
    return g.binary(Op.ADD, a, b)


def _sub(a: Node, b: Node) -> Node:
    return g.binary(Op.SUB, a, b)


def _mul(a: Node, b: Node) -> Node:
    return g.binary(Op.MUL, a, b)


def _div(a: Node, b: Node) -> Node:
    return g.binary(Op.DIV, a, b)


def _neg(a: Node) -> Node:
    return g.unary(Op.NEG, a)


def _u(op: Op, x: Node) -> Node:
    return g.unary(op, x)


def _scaled(grad: Node, factor: float) -> Node:
    return _mul(grad, _c(factor, grad))


def _reverse(x: Node, axis: int) -> Node:
    n = x.shape[axis]
    if n < 2:
        return x
    return g.slice_(x, [(n - 1, n, -1) if i == axis else (0, m, 1) for i, m in enumerate(x.shape)])


def _kept(reduced: Node, source: Node, axes: Sequence[int]) -> Node:
    """A reduction's result, or its gradient, repeated over the reduced axes of `source`."""
    shape = tuple(1 if i in axes else n for i, n in enumerate(source.shape))
    return g.expand(g.reshape(reduced, shape), source.shape)


# -- one source


def _unary(rule: Callable[[Node, Node, Node], Node]) -> Rule:
    """A rule from (x, result, gradient)."""
    return lambda node, grad: (rule(node.src[0], node, grad),)


def _root(x: Node, grad: Node, square_of: float, sign: float) -> Node:
    """Grad / sqrt(square_of + sign*x²)."""
    square = _mul(x, x)
    inside = _add(_c(square_of, x), square if sign > 0 else _neg(square))
    return _div(grad, _u(Op.SQRT, inside))


def _abs(x: Node, _: Node, grad: Node) -> Node:
    zero = _c(0.0, x)
    below = g.where(g.binary(Op.LT, x, zero), _neg(grad), zero)
    return g.where(g.binary(Op.LT, zero, x), grad, below)


def _acosh(x: Node, _: Node, grad: Node) -> Node:
    one = _c(1.0, x)
    return _div(grad, _mul(_u(Op.SQRT, _sub(x, one)), _u(Op.SQRT, _add(x, one))))


def _erf(x: Node, _: Node, grad: Node) -> Node:
    bell = _u(Op.EXP, _neg(_mul(x, x)))
    return _mul(grad, _scaled(bell, 2.0 / math.sqrt(math.pi)))


def _cast(node: Node, grad: Node) -> Grads:
    return (g.cast(grad, node.src[0].dtype),)


# -- two and three sources


def _product(node: Node, grad: Node) -> Grads:
    a, b = node.src
    return _mul(grad, b), _mul(grad, a)


def _quotient(node: Node, grad: Node) -> Grads:
    _, b = node.src
    over = _div(grad, b)
    return over, _neg(_mul(over, node))


def _remainder(quotient: Callable[[Node, Node], Node]) -> Rule:
    def rule(node: Node, grad: Node) -> Grads:
        a, b = node.src
        return grad, _neg(_mul(grad, quotient(a, b)))

    return rule


def _power(node: Node, grad: Node) -> Grads:
    """At b = 0 the slope in a is 0, at a = 0 that in b: not the NaN of the formulas."""
    a, b = node.src
    zero, one = _c(0.0, a), _c(1.0, a)
    flat = g.binary(Op.EQ, b, zero)
    in_a = _mul(b, g.binary(Op.POW, a, _sub(b, one)))
    vanishing = g.binary(Op.AND, g.binary(Op.EQ, a, zero), g.binary(Op.LE, zero, b))
    in_b = _mul(node, _u(Op.LOG, g.where(vanishing, one, a)))
    return _mul(grad, g.where(flat, zero, in_a)), _mul(grad, g.where(vanishing, zero, in_b))


def _atan2(node: Node, grad: Node) -> Grads:
    y, x = node.src
    over = _div(grad, _add(_mul(x, x), _mul(y, y)))
    return _mul(over, x), _neg(_mul(over, y))


def _copysign(node: Node, grad: Node) -> Grads:
    a, _ = node.src
    same = g.binary(Op.EQ, node, a)
    signed = g.where(same, grad, _neg(grad))
    return g.where(g.binary(Op.EQ, a, _c(0.0, a)), _c(0.0, a), signed), None


def _larger(order: Callable[[Node, Node], Node]) -> Rule:
    def rule(node: Node, grad: Node) -> Grads:
        a, b = node.src
        zero = _c(0.0, a)
        shared = g.where(g.binary(Op.EQ, a, b), _scaled(grad, 0.5), zero)
        return g.where(order(a, b), grad, shared), g.where(order(b, a), grad, shared)

    return rule


def _where(node: Node, grad: Node) -> Grads:
    condition, zero = node.src[0], _c(0.0, grad)
    return None, g.where(condition, grad, zero), g.where(condition, zero, grad)


# -- reductions and scans


def _sum(node: Node, grad: Node) -> Grads:
    return (_kept(grad, node.src[0], node.arg),)


def _prod(node: Node, grad: Node) -> Grads:
    """The product of all others, from running products on either side: right at zeros."""
    x, axes = node.src[0], node.arg
    others = [i for i in range(x.ndim) if i not in axes]
    order = [*others, *axes]
    moved = g.permute(x, order)
    lead = moved.shape[: len(others)]
    flat = g.reshape(moved, (*lead, math.prod(moved.shape[len(others) :])))
    last = flat.ndim - 1
    before = _running_without_own(flat, last)
    after = _reverse(_running_without_own(_reverse(flat, last), last), last)
    rest = g.reshape(_mul(before, after), moved.shape)
    rest = g.permute(rest, [order.index(i) for i in range(x.ndim)])
    return (_mul(_kept(grad, x, axes), rest),)


def _running_without_own(x: Node, axis: int) -> Node:
    """out[i] is the product of x[0] .. x[i-1]."""
    n = x.shape[axis]
    if n == 0:
        return x
    shorter = g.slice_(
        x, [(0, n - 1, 1) if i == axis else (0, m, 1) for i, m in enumerate(x.shape)]
    )
    one = g.const(1.0, (), x.dtype)
    shifted = g.pad(shorter, [(1, 0, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)], one)
    return g.scan(Op.PROD, shifted, axis)


def _extreme(node: Node, grad: Node) -> Grads:
    x, axes = node.src[0], node.arg
    chosen = g.binary(Op.EQ, x, _kept(node, x, axes))
    count = g.reduce(Op.SUM, g.cast(chosen, dt.accumulator(x.dtype)), axes)
    share = _div(grad, g.cast(count, x.dtype))
    return (g.where(chosen, _kept(share, x, axes), _c(0.0, x)),)


def _scan(node: Node, grad: Node) -> Grads:
    kind, axis = node.arg
    x = node.src[0]
    if kind is Op.SUM:
        return (_reverse(g.scan(Op.SUM, _reverse(grad, axis), axis), axis),)
    if kind is Op.PROD:
        return (_scan_prod(x, axis, grad),)
    # an element is in the results from itself to the next that replaces it
    place = g.iota(x.shape, axis, dt.int64)
    own = g.where(g.binary(Op.EQ, x, node), place, g.const(0, x.shape, dt.int64))
    holder = g.scan(Op.MAX, own, axis)
    return (g.scatter(_c(0.0, x), holder, grad, axis, add=True),)


def _scan_prod(x: Node, axis: int, grad: Node) -> Node:
    """dx[i] = sum over j >= i of grad[j] * prod(x[0..j] without x[i]): right at zeros."""
    n = x.shape[axis]
    ndim = x.ndim + 1
    # the new axis, at `axis`, is i; the old one, now at axis+1, is j
    shape = (*x.shape[:axis], n, *x.shape[axis:])
    column = (*x.shape[:axis], 1, *x.shape[axis:])
    wide = g.expand(g.reshape(x, column), shape)
    i, j = g.iota(shape, axis, dt.int64), g.iota(shape, axis + 1, dt.int64)
    without = g.where(g.binary(Op.EQ, i, j), _c(1.0, wide), wide)
    products = g.scan(Op.PROD, without, axis + 1)
    terms = _mul(products, g.expand(g.reshape(grad, column), shape))
    terms = g.where(g.binary(Op.LE, i, j), terms, _c(0.0, terms))
    assert terms.ndim == ndim, terms
    return g.reduce(Op.SUM, terms, (axis + 1,))


# -- index maps


def _reshape(node: Node, grad: Node) -> Grads:
    return (g.reshape(grad, node.src[0].shape),)


def _permute(node: Node, grad: Node) -> Grads:
    return (g.permute(grad, [node.arg.index(i) for i in range(node.ndim)]),)


def _expand(node: Node, grad: Node) -> Grads:
    x = node.src[0]
    axes = [i for i, (a, b) in enumerate(zip(x.shape, node.shape, strict=True)) if a != b]
    wide = g.reduce(Op.SUM, g.cast(grad, dt.accumulator(grad.dtype)), axes)
    return (g.reshape(g.cast(wide, grad.dtype), x.shape),)


def _pad(node: Node, grad: Node) -> Grads:
    widths, _ = node.arg
    ranges = [
        (lo if n else 0, n, mid + 1)
        for n, (lo, mid, _) in zip(node.src[0].shape, widths, strict=True)
    ]
    return (g.slice_(grad, ranges),)


def _slice(node: Node, grad: Node) -> Grads:
    """Zeros around and between: PAD, after axes that ran backwards are turned."""
    widths = []
    for axis, (n, (first, count, step)) in enumerate(zip(node.src[0].shape, node.arg, strict=True)):
        if count == 0:
            widths.append((n, 0, 0))
            continue
        last = first + (count - 1) * step
        if step < 0:
            grad = _reverse(grad, axis)
            first, last = last, first
        widths.append((first, abs(step) - 1 if count > 1 else 0, n - 1 - last))
    return (g.pad(grad, widths, g.const(0.0, (), grad.dtype)),)


def _window(node: Node, grad: Node) -> Grads:
    axis, window_axis, stride, dilation = node.arg
    extent = node.src[0].shape[axis]
    return (g.scatter_window(grad, axis, window_axis, stride, dilation, extent),)


def _scatter_window(node: Node, grad: Node) -> Grads:
    axis, window_axis, stride, dilation = node.arg
    count = node.src[0].shape[axis]
    return (g.window(grad, axis, window_axis, stride, dilation, count),)


# -- selection


def _concat(node: Node, grad: Node) -> Grads:
    axis, start = node.arg, 0
    parts: list[Node | None] = []
    for source in node.src:
        count = source.shape[axis]
        ranges = [(0, n, 1) for n in source.shape]
        ranges[axis] = (start if count else 0, count, 1)
        parts.append(g.slice_(grad, ranges))
        start += count
    return tuple(parts)


def _gather(node: Node, grad: Node) -> Grads:
    data, index = node.src
    return g.scatter(_c(0.0, data), index, grad, node.arg, add=True), None


def _scatter(node: Node, grad: Node) -> Grads:
    target, index, updates = node.src
    axis, kind = node.arg
    taken = g.gather(grad, index, axis)
    if kind == "add":
        return grad, None, taken
    untouched = g.scatter(grad, index, _c(0.0, updates), axis, add=False)
    # of several updates to one place the last one counts: find which it was
    place = g.iota(index.shape, axis, dt.int64)
    nobody = g.const(-1, target.shape, dt.int64)
    winner = g.gather(g.scatter(nobody, index, place, axis, add=False), index, axis)
    won = g.binary(Op.EQ, winner, place)
    return untouched, None, g.where(won, taken, _c(0.0, updates))


def _same(node: Node, grad: Node) -> Grads:
    return (grad,)


def _copy(node: Node, grad: Node) -> Grads:
    device = node.src[0].device
    return (grad if device is None else g.copy_to(grad, device),)


RULES: dict[Op, Rule] = {
    Op.NEG: _unary(lambda x, y, d: _neg(d)),
    Op.ABS: _unary(_abs),
    Op.SQRT: _unary(lambda x, y, d: _div(_scaled(d, 0.5), y)),
    Op.EXP: _unary(lambda x, y, d: _mul(d, y)),
    Op.EXP2: _unary(lambda x, y, d: _mul(d, _scaled(y, math.log(2)))),
    Op.EXPM1: _unary(lambda x, y, d: _mul(d, _add(y, _c(1.0, y)))),
    Op.LOG: _unary(lambda x, y, d: _div(d, x)),
    Op.LOG2: _unary(lambda x, y, d: _div(d, _scaled(x, math.log(2)))),
    Op.LOG10: _unary(lambda x, y, d: _div(d, _scaled(x, math.log(10)))),
    Op.LOG1P: _unary(lambda x, y, d: _div(d, _add(x, _c(1.0, x)))),
    Op.SIN: _unary(lambda x, y, d: _mul(d, _u(Op.COS, x))),
    Op.COS: _unary(lambda x, y, d: _neg(_mul(d, _u(Op.SIN, x)))),
    Op.TAN: _unary(lambda x, y, d: _mul(d, _add(_mul(y, y), _c(1.0, y)))),
    Op.ASIN: _unary(lambda x, y, d: _root(x, d, 1.0, -1.0)),
    Op.ACOS: _unary(lambda x, y, d: _neg(_root(x, d, 1.0, -1.0))),
    Op.ATAN: _unary(lambda x, y, d: _div(d, _add(_mul(x, x), _c(1.0, x)))),
    Op.SINH: _unary(lambda x, y, d: _mul(d, _u(Op.COSH, x))),
    Op.COSH: _unary(lambda x, y, d: _mul(d, _u(Op.SINH, x))),
    Op.TANH: _unary(lambda x, y, d: _mul(d, _sub(_c(1.0, y), _mul(y, y)))),
    Op.ASINH: _unary(lambda x, y, d: _root(x, d, 1.0, 1.0)),
    Op.ACOSH: _unary(_acosh),
    Op.ATANH: _unary(lambda x, y, d: _div(d, _sub(_c(1.0, x), _mul(x, x)))),
    Op.ERF: _unary(_erf),
    Op.CAST: _cast,
    Op.ADD: lambda node, d: (d, d),
    Op.SUB: lambda node, d: (d, _neg(d)),
    Op.MUL: _product,
    Op.DIV: _quotient,
    Op.MOD: _remainder(lambda a, b: g.binary(Op.FLOORDIV, a, b)),
    Op.FMOD: _remainder(lambda a, b: _u(Op.TRUNC, _div(a, b))),
    Op.POW: _power,
    Op.ATAN2: _atan2,
    Op.COPYSIGN: _copysign,
    Op.MAXIMUM: _larger(lambda a, b: g.binary(Op.LT, b, a)),
    Op.MINIMUM: _larger(lambda a, b: g.binary(Op.LT, a, b)),
    Op.WHERE: _where,
    Op.SUM: _sum,
    Op.PROD: _prod,
    Op.MAX: _extreme,
    Op.MIN: _extreme,
    Op.SCAN: _scan,
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.PAD: _pad,
    Op.SLICE: _slice,
    Op.WINDOW: _window,
    Op.SCATTER_WINDOW: _scatter_window,
    Op.CONCAT: _concat,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.CONTIGUOUS: _same,
    Op.COPY: _copy,
}
"""The derivative of each operation that has one."""
