"""Which nodes are kept: computed by loops of their own instead of inside their users' expressions.

Kept are what was asked for, what folds or orders (reductions, scans, scatters, sorts,
concatenations), and elementwise results that would be computed too often: `demand` counts how many
elements a node's users evaluate, and computing each again is weighed against storing it once and
loading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frontend.graph.node import ELEMENTWISE, FLOAT_UNARY, INDEX_MAPS, REDUCE, Node, Op, topological

FOLDS = REDUCE | {Op.SCAN, Op.SCATTER, Op.ARGSORT, Op.CONCAT, Op.COPY}
"""Nodes with loops, or a transfer, of their own."""
_COST = {
    Op.DIV: 3, Op.SQRT: 3, Op.FLOORDIV: 8, Op.MOD: 8, Op.FMOD: 12, Op.POW: 24, Op.ATAN2: 16,
    Op.CAST: 0.5, Op.BITCAST: 0.5, Op.NEG: 0.5, Op.GATHER: 4, Op.PAD: 2, Op.SCATTER_WINDOW: 4,
    Op.CONST: 0.0, Op.IOTA: 0.5,
}  # fmt: skip
MAX_DEPTH = 60
"""Inlined operations on top of one another; bounds recursion in `body.py` and a kernel's size."""
RECOMPUTE_LIMIT = 4.0
"""Extra operations for each element that are still cheaper than a store and a load."""
EXPANDED_LIMIT = 64.0
"""The same for a result much larger than all that it is made of."""


def cost_of(op: Op) -> float:
    """Rough operations for one element of a node."""
    if op in _COST:
        return _COST[op]
    if op in FLOAT_UNARY:  # a polynomial
        return 8.0
    return 0.0 if op in INDEX_MAPS or op in (Op.DETACH, Op.CONTIGUOUS) else 1.0


def folds(node: Node) -> bool:
    """Whether `node` cannot be part of another's expression.

    A COPY of what lies on no device is no transfer, so it can.
    """
    return node.op in FOLDS and not (node.op is Op.COPY and node.src[0].device is None)


def is_leaf(node: Node) -> bool:
    return node.storage is not None or node.op is Op.BUFFER


def needs_nothing(node: Node) -> bool:
    """Whether a node's value is there, or has no elements."""
    return is_leaf(node) or 0 in node.shape


def partition(roots: Sequence[Node]) -> tuple[list[Node], set[Node]]:
    """(all nodes needed, sources first; the kept ones among them)."""
    order = topological(roots)
    kept = {n for n in roots if not is_leaf(n)}
    kept |= {n for n in order if not is_leaf(n) and (folds(n) or n.op is Op.CONTIGUOUS)}
    for node in order:
        if node.op in (Op.ARGSORT, Op.COPY) and folds(node) and node in kept:
            kept |= {s for s in node.src if not is_leaf(s)}
    _keep_deep(order, kept)
    _keep_recomputed(order, kept)
    return order, kept


def _keep_deep(order: Iterable[Node], kept: set[Node]) -> None:
    depth: dict[Node, int] = {}
    for node in order:
        if needs_nothing(node):
            depth[node] = 0
            continue
        below = 1 + max((0 if s in kept else depth[s] for s in node.src), default=0)
        if below > MAX_DEPTH and node.op in ELEMENTWISE:
            kept.add(node)
        depth[node] = below


def _keep_recomputed(order: Sequence[Node], kept: set[Node]) -> None:
    """From users to sources, so that each node's users are decided before it is."""
    inlined = _inlined_cost(order, kept)
    read = _elements_read(order, kept)
    demand: dict[Node, float] = dict.fromkeys(order, 0.0)
    for node in reversed(order):
        if needs_nothing(node):
            continue
        size = max(1, node.size)
        if node not in kept:
            candidate = node.op in ELEMENTWISE or node.op in (Op.PAD, Op.GATHER)
            extra = (demand[node] / size - 1.0) * inlined[node]
            limit = RECOMPUTE_LIMIT
            if size > 4 * read[node]:  # a product of small things: reading them again is cheaper
                limit = EXPANDED_LIMIT
            if candidate and extra > limit and inlined[node] >= 1.5:
                kept.add(node)
        for source in node.src:
            if node in kept:
                demand[source] += source.size if folds(node) else size
            else:
                demand[source] += demand[node]


def _elements_read(order: Sequence[Node], kept: set[Node]) -> dict[Node, int]:
    """Elements of everything kept behind a node, with what is used twice counted twice."""
    read: dict[Node, int] = {}
    for node in order:
        if needs_nothing(node):
            read[node] = node.size
        else:
            read[node] = sum(s.size if s in kept else read[s] for s in node.src)
    return read


def _inlined_cost(order: Sequence[Node], kept: set[Node]) -> dict[Node, float]:
    """Operations and loads behind one element, down to what is kept.

    Shared parts count once for each use, so the sum is capped.
    """
    costs: dict[Node, float] = {}
    for node in order:
        if needs_nothing(node):
            costs[node] = 1.0
            continue
        below = sum(1.0 if s in kept else costs[s] for s in node.src)
        costs[node] = min(1000.0, cost_of(node.op) + below)
    return costs
