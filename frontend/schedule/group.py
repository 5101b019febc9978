"""Kept nodes that share a kernel.

Three ways to share:

* in place: an elementwise result that is the only reader of a reduction, and of another shape,
  takes the reduction into its own points, so that a product is stored transposed or sliced at once.
* same points: an elementwise result joins the kernel of a reduction, or of another elementwise
  result, whose shape it has and which it reads only at its own point. Its store becomes one more
  store of that nest.
* same rows: softmax, normalisations, losses. Nodes whose leading axes are the same rows, and which
  read each other only within a row, run one after another inside one loop over rows; a row lives in
  cache or registers.

Before that, chains of products with folds of rows between them, as attention is, become kernels
over blocks of rows (`chains.py`).

A node joins the latest kernel among those it depends on, or starts a kernel of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from frontend.graph import node as g
from frontend.graph.node import REDUCE, Node, Op, Shape
from frontend.loops import expr as ex
from frontend.loops.index import Index, Var, flatten
from frontend.loops.machine import Machine
from frontend.schedule.body import Body, Ref, body_of
from frontend.schedule.chains import Chain, chained, reuses
from frontend.schedule.partition import folds, is_leaf

SMALL_POINTS = 1 << 15
"""A kernel of fewer points need not be split over cores, so it may have few rows."""
MAX_FUSED_DEPTH = 120
"""Operations on top of one another in one kernel: what rewrites them recurses as deep."""
MIN_ROW = 8
"""Rows of fewer points leave most lanes of a vector empty."""
SPLIT_POINTS = 1 << 18
"""A fold to one value of at least so many elements is done in two kernels."""
SPLITTABLE = frozenset({Op.SUM, Op.PROD, Op.MAX, Op.MIN})
CHUNKS: tuple[int, ...] = (256, 128, 64, 32, 16, *range(255, 7, -1))
"""Pieces that such a fold may be cut into, the best first."""


@dataclass
class Group:
    """One kernel to be. `rows` is None while all members have the same points."""

    number: int
    row_bytes: int
    members: list[Body] = field(default_factory=list)
    rows: Shape | None = None
    block: int = 0
    """Rows of the last row axis that run together; 0 if rows run one by one."""
    closed: bool = False
    depths: dict[Node, int] = field(default_factory=dict)
    """How deep a member's expression is with those of the members that it inlines."""

    @property
    def nodes(self) -> list[Node]:
        return [b.node for b in self.members]


def group(
    order: list[Node],
    kept: set[Node],
    roots: frozenset[Node],
    row_bytes: int,
    machine: Machine | None = None,
) -> list[Group]:
    """Groups in an order that respects all dependencies.

    `row_bytes`: what a block can keep of a row, with all that is computed from it. `machine`: what
    chains are to fit; there are none without.
    """
    bodies = [
        body
        for node in order
        if node in kept and not is_leaf(node) and node.size
        for body in _bodies(node, kept)
    ]
    uses = Counter(ref.node for body in bodies for ref in body.refs())
    groups: list[Group] = []
    group_of: dict[Node, Group] = {}
    for item in chained(bodies, roots, machine):
        if isinstance(item, Chain):
            rows = item.bodies[0].node.shape[: item.rows]
            made = Group(len(groups), row_bytes, list(item.bodies), rows, item.block, closed=True)
            groups.append(made)
            group_of |= dict.fromkeys(item.nodes, made)
        else:
            _place(item, groups, group_of, uses, roots, row_bytes)
    return groups


def _bodies(node: Node, kept: set[Node]) -> list[Body]:
    """The node's body; for a large fold to one value, that of the partial results before it."""

    def is_kept(n: Node) -> bool:
        return n in kept or is_leaf(n)

    chunks = _chunks(node)
    if chunks is None:
        return [body_of(node, is_kept)]
    source = node.src[0]
    rows = g.reshape(source, (chunks, source.size // chunks))
    partial = g.reduce(node.op, rows, (1,))
    var = Var("chunk", chunks)
    whole = Body(node, (), (var,), Ref(partial, (Index.of(var),)))
    return [body_of(partial, is_kept), whole]


def _chunks(node: Node) -> int | None:
    """How many pieces a fold of everything to one value is cut into, so that cores can share it."""
    if node.op not in SPLITTABLE or node.size != 1 or node.src[0].size < SPLIT_POINTS:
        return None
    size = node.src[0].size
    for chunks in CHUNKS:
        if size % chunks == 0 and size // chunks >= SMALL_POINTS // 2:
            return chunks
    return None


def _place(
    body: Body,
    groups: list[Group],
    group_of: dict[Node, Group],
    uses: Counter[Node],
    roots: frozenset[Node],
    row_bytes: int,
) -> None:
    node = body.node
    sources = {group_of[r.node].number: group_of[r.node] for r in body.refs() if r.node in group_of}
    latest = sources[max(sources)] if sources else None
    absorbed = None if latest is None else _absorbed(latest, body, uses, roots)
    if latest is not None and absorbed is not None:
        latest.members = [absorbed]
    elif latest is not None and _joins(latest, body):
        latest.members.append(body)
    else:
        latest = Group(len(groups), row_bytes, [body])
        latest.closed = folds(node) and node.op not in REDUCE
        groups.append(latest)
    group_of[node] = latest


def _absorbed(gr: Group, body: Body, uses: Counter[Node], roots: frozenset[Node]) -> Body | None:
    """`body` with the group's only member done in place, if that is a fold nobody else reads."""
    member = gr.members[0]
    if len(gr.members) > 1 or gr.closed or body.reduce or body.parts or not member.reduce:
        return None
    if folds(body.node) or member.node in roots or uses[member.node] != 1:
        return None
    if member.node.shape == body.node.shape or body.node.size > member.node.size:
        return None
    refs = (e for e in _plain_parts(body.value) if isinstance(e, Ref))
    ref = next((r for r in refs if r.node is member.node), None)
    if ref is None:
        return None
    if any(i.low < 0 or i.high >= n for i, n in zip(ref.indices, member.node.shape, strict=True)):
        return None
    return body.absorb(member, ref)


def _plain_parts(e: ex.Expr) -> Iterator[ex.Expr]:
    """What is computed at every point: not what stands under a condition or a looked-up index."""
    stack = [e]
    while stack:
        e = stack.pop()
        yield e
        if not isinstance(e, ex.Masked | ex.Lookup):
            stack.extend(e.parts)


def _joins(gr: Group, body: Body) -> bool:
    """Whether `body` may join `gr` by points or by rows; in the second case sets `gr.rows`."""
    node = body.node
    if gr.closed or (folds(node) and node.op not in REDUCE) or node.size == 0:
        return False
    if gr.rows is None and _same_points(gr, body):
        return True
    if any(reuses(b) or b.after is not None for b in gr.members) or reuses(body):
        return False
    rows = _common_rows(gr, body)
    if rows is None:
        return False
    gr.rows = rows
    return True


def _own_refs(gr: Group, body: Body) -> list[Ref]:
    inside = set(gr.nodes)
    return [r for r in body.refs() if r.node in inside]


def _same_points(gr: Group, body: Body) -> bool:
    if body.reduce or body.node.shape != gr.members[0].node.shape:
        return False
    own = tuple(map(Index.of, body.axes))
    refs = _own_refs(gr, body)
    depth = body.value.depth + max((gr.depths.get(r.node, 0) for r in refs), default=0)
    if depth > MAX_FUSED_DEPTH or not all(r.indices == own for r in refs):
        return False
    gr.depths[body.node] = depth
    return True


def _common_rows(gr: Group, body: Body) -> Shape | None:
    """The rows that `body` and all members can be looped over together."""
    candidates = [gr.rows] if gr.rows is not None else _row_candidates(gr, body)
    for rows in candidates:
        if _fits(rows, gr, body):
            return rows
    return None


def _row_candidates(gr: Group, body: Body) -> list[Shape]:
    found = []
    for b in (*gr.members, body):
        if b.reduce:
            shape = tuple(v.extent for v in b.axes)
            if shape not in found:
                found.append(shape)
    return found


def _fits(rows: Shape, gr: Group, body: Body) -> bool:
    count = math.prod(rows)
    bodies = [*gr.members, body]
    points = max(math.prod(v.extent for v in (*b.axes, *b.reduce)) for b in bodies)
    if count < 16 and points > SMALL_POINTS:
        return False
    if points < MIN_ROW * count:
        return False
    inner = sum(b.node.size // max(1, count) * b.node.dtype.size_bytes for b in bodies)
    if inner > gr.row_bytes:
        return False
    return all(_row_like(rows, b, gr) for b in bodies)


def _row_like(rows: Shape, body: Body, gr: Group) -> bool:
    """Leading axes are the rows, nothing folds them, and other members are read in the same row."""
    depth = len(rows)
    if tuple(v.extent for v in body.axes[:depth]) != rows or len(body.axes) < depth:
        return False
    own = tuple(map(Index.of, body.axes[:depth]))
    inside = set(gr.nodes)
    for ref in body.refs():
        if ref.node in inside and ref.indices[:depth] != own:
            return False
    return _inner_is_contiguous(body, depth)


def _inner_is_contiguous(body: Body, depth: int) -> bool:
    """Rows are worth looping over only if lanes can run along what is inside them."""
    inner = (*body.axes[depth:], *body.reduce)
    wide = [v for v in inner if v.extent > 1]
    if not wide:
        return True
    loads = [r for r in body.refs() if r.node.size > 1]
    return all(_step(r, wide[-1]) in (0, 1) for r in loads)


def _step(ref: Ref, var: Var) -> int | None:
    return flatten(ref.indices, ref.node.shape).coefficient(var)
