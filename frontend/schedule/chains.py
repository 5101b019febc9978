"""Products whose result is folded row by row and multiplied again: attention.

    scores[q, k] = sum over e of …        a shallow product, larger than what it is made of
    top[q] = max over k, exp, sum …       folds of its rows
    out[q, d] = sum over k of …           a product that folds its columns away

Such a chain runs as one kernel over blocks of rows (`blocks.py`): the scores of one block stay in
the block's own memory, and both products have as many rows as their register tiles want.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from frontend.graph.node import ELEMENTWISE, REDUCE, Node, Op
from frontend.loops import expr as ex
from frontend.loops.index import Index
from frontend.loops.machine import Machine
from frontend.schedule.body import Bind, Body, Put, Ref
from frontend.schedule.partition import folds

BLOCKS = (64, 32, 16)
"""Rows of a block, the best first."""
DEEPEST = 128
"""A deeper product takes so long that storing it hardly matters."""
LEAST_COLUMNS = 16
"""Shorter rows of scores are as small as what they are made of."""
MOST_ROOM = 2 << 20
"""However large the cache: it is a part of the stack that kernels run on."""
_CHAINED = frozenset({Op.SUM, Op.MAX, Op.MIN, Op.PROD})


@dataclass(frozen=True)
class Chain:
    """Bodies that run as one kernel, sources first; the first is the product with long rows.

    `rows`: how many leading axes are rows; the last of them is cut into blocks of `block`.
    """

    bodies: tuple[Body, ...]
    rows: int
    block: int
    replaced: frozenset[Node]
    """The nodes whose place it takes; some may no longer be needed."""

    @property
    def nodes(self) -> list[Node]:
        return [body.node for body in self.bodies]


def block_of(machine: Machine, row_bytes: int, rows: int) -> int | None:
    """Rows of a block, if a row's scores have `row_bytes`; None if the machine has no room.

    What is computed of the scores takes their place, as a rule. Where that must not fail, since
    local memory has an end, there has to be room for both.
    """
    room = machine.row_bytes // 2 if machine.block_lanes else min(machine.l2_bytes, MOST_ROOM)
    for block in BLOCKS:
        if block >= machine.block_lanes and min(block, rows) * row_bytes <= room * 3 // 4:
            return min(block, rows)
    return None


def reuses(body: Body) -> bool:
    """Whether `body` is a contraction: it reads elements often, so register tiles share loads."""
    if not body.reduce:
        return False
    points = math.prod(v.extent for v in (*body.axes, *body.reduce))
    read = {r.node for r in body.refs()}
    return points > 1.5 * max(1, sum(n.size for n in read)) and bool(read) and bool(body.axes)


def chained(
    bodies: Sequence[Body], roots: frozenset[Node], machine: Machine | None
) -> list[Body | Chain]:
    """The bodies in an order that respects dependencies, chains put together."""
    found: list[Body | Chain] = list(bodies)
    if machine is None:
        return found
    taken: set[Node] = set()
    for last in bodies:
        chain = _chain_to(last, bodies, roots, machine)
        if chain is not None and not taken & chain.replaced:
            taken |= chain.replaced
            found = _gathered(found, chain)
    return found


def _chain_to(
    last: Body, bodies: Sequence[Body], roots: frozenset[Node], machine: Machine
) -> Chain | None:
    depth = len(last.axes) - 1
    if depth < 1 or last.axes[depth - 1].extent < BLOCKS[-1] or not _is_product(last):
        return None
    of = {body.node: body for body in bodies}
    inside = _of_same_rows(last, of, depth)
    products = [b for b in inside if b is not last and _is_product(b)]
    if len(products) != 1:
        return None
    (first,) = products
    after = _descendants(first, bodies)
    chain = [b for b in bodies if b in inside and (b is first or b.node in after)]
    if not _is_suitable(first, last, chain, of, after, depth):
        return None
    columns = first.axes[-1].extent
    kept = [b for b in chain if b is not first and len(b.axes) > depth and b is not last]
    widest = max(b.node.dtype.size_bytes for b in (first, *kept))
    block = block_of(machine, columns * widest, last.axes[depth - 1].extent)
    if block is None:
        return None
    replaced = frozenset(b.node for b in chain)
    return Chain(_hoisted(chain, bodies, roots), depth, block, replaced)


def _is_product(body: Body) -> bool:
    plain = body.node.op is Op.SUM and body.after is None and len(body.reduce) == 1
    return plain and body.node.dtype.is_float and reuses(body)


def _is_suitable(
    first: Body,
    last: Body,
    chain: Sequence[Body],
    of: Mapping[Node, Body],
    after: set[Node],
    depth: int,
) -> bool:
    """Whether the products have the shapes of attention, with folds of rows between them."""
    columns = first.axes[-1].extent
    if len(first.axes) != depth + 1 or last.reduce[0].extent != columns:
        return False
    if columns < LEAST_COLUMNS or first.reduce[0].extent > min(DEEPEST, columns):
        return False
    if not any(b.reduce and len(b.axes) == depth for b in chain):
        return False
    # everything between the two is in the chain, so that it can run as one
    return _ancestors(last, of) & after <= {b.node for b in chain}


def _of_same_rows(last: Body, of: Mapping[Node, Body], depth: int) -> set[Body]:
    """`last` and all behind it that is read in the row of its reader; a product ends the search."""
    rows = last.node.shape[:depth]
    found, stack = {last}, [last]
    while stack:
        body = stack.pop()
        own = tuple(map(Index.of, body.axes[:depth]))
        for ref in body.refs():
            source = of.get(ref.node)
            if source is None or source in found or source.node.shape[:depth] != rows:
                continue
            if ref.indices[:depth] == own and _may_chain(source, depth):
                found.add(source)
                if not _is_product(source):
                    stack.append(source)
    return found


def _may_chain(body: Body, depth: int) -> bool:
    """A product, a map of a row, or a fold of a row to one value."""
    if body.parts or body.after is not None or len(body.axes) > depth + 1:
        return False
    if body.reduce:
        fold = body.node.op in _CHAINED and len(body.reduce) == 1 and len(body.axes) == depth
        return fold or _is_product(body)
    return body.node.op in ELEMENTWISE and not folds(body.node)


def _descendants(first: Body, bodies: Sequence[Body]) -> set[Node]:
    found = {first.node}
    for body in bodies:
        if any(ref.node in found for ref in body.refs()):
            found.add(body.node)
    return found


def _ancestors(last: Body, of: Mapping[Node, Body]) -> set[Node]:
    found: set[Node] = set()
    stack = [last.node]
    while stack:
        node = stack.pop()
        if node not in found and node in of:
            found.add(node)
            stack += [ref.node for ref in of[node].refs()]
    return found


def _gathered(items: Sequence[Body | Chain], chain: Chain) -> list[Body | Chain]:
    """The chain as one item, behind all that it needs and before all that needs it."""
    dropped = chain.replaced
    at = [i for i, item in enumerate(items) if isinstance(item, Body) and item.node in dropped]
    before, later, needing = [], [], set(dropped)
    for item in items[at[0] : at[-1] + 1]:
        mine = item.bodies if isinstance(item, Chain) else (item,)
        if isinstance(item, Body) and item.node in dropped:
            continue
        if any(ref.node in needing for body in mine for ref in body.refs()):
            needing |= {body.node for body in mine}
            later.append(item)
        else:
            before.append(item)
    return [*items[: at[0]], *before, chain, *later, *items[at[-1] + 1 :]]


# --- what does not move with a fold leaves it ----------------------------------------------------


def _hoisted(
    chain: Sequence[Body], bodies: Sequence[Body], roots: frozenset[Node]
) -> tuple[Body, ...]:
    """The chain, its last product dividing at the end instead of at each element."""
    *others, last = chain
    of = {body.node: body for body in others}
    moved = _divided_at_the_end(last, of)
    if moved is None:
        return tuple(chain)
    chain = [*others, moved]
    read = {ref.node for b in (*bodies, moved) if b is not last for ref in b.refs()}
    return tuple(b for b in chain if b is moved or b.node in roots or b.node in read)


def _divided_at_the_end(last: Body, of: Mapping[Node, Body]) -> Body | None:
    """sum of (x / y) * z as (sum of x * z) / y, where y is the same for all that is summed."""
    value = last.value
    if not isinstance(value, ex.Alu) or value.op is not Op.MUL or value.dtype.bits < 32:
        return None
    for part in _refs(value):
        source = of.get(part.node)
        quotient = None if source is None else source.value
        if source is None or not isinstance(quotient, ex.Alu) or quotient.op is not Op.DIV:
            continue
        bind = Bind(dict(zip(source.axes, part.indices, strict=True)))
        x, y = (bind(e) for e in quotient.args)
        if last.reduce[0] not in y.variables:
            after = ex.Alu(Op.DIV, (ex.Accumulated(0, last.node.dtype), y), last.node.dtype)
            return replace(last, value=Put(part, x)(value), after=after)
    return None


def _refs(value: ex.Alu) -> Iterator[Ref]:
    return (e for e in value.args if isinstance(e, Ref))


assert _CHAINED <= REDUCE
