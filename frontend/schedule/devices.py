"""What graphs of several devices need: constants on each device, and steps in few pieces.

A node made of constants alone lies on no device, and whoever needs it computes it. Where it is
kept, its memory is on one device only; so before a graph of several devices is partitioned, each
device gets nodes of its own, as if the constants lay there. A COPY of such a node is no copy at
all then.

    before: %0 = CONST 3.0; on cpu:0: MUL %a %0; on cpu:1: MUL %b %0
    after:  %0 = CONST 3.0 on cpu:0; %1 = CONST 3.0 on cpu:1; MUL %a %0; MUL %b %1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from frontend.graph import node as g
from frontend.graph.node import Node, Op, topological
from frontend.schedule.partition import is_leaf

if TYPE_CHECKING:
    from frontend.schedule.plan import Step


def settle(roots: Sequence[Node]) -> list[Node]:
    """The roots of the same graph with every node on a device; unchanged where one takes part."""
    order = topological(roots)
    if len({node.device for node in order if node.device is not None}) < 2:
        return list(roots)
    settled: dict[tuple[Node, str], Node] = {}
    for node in order:
        if node.device is not None:
            settled[node, node.device] = _moved(node, node.device, settled)
    return [settled[root, root.device] if root.device is not None else root for root in roots]


def _moved(node: Node, device: str, settled: dict[tuple[Node, str], Node]) -> Node:
    """`node`, on `device`, with all that is behind it on some device."""
    if is_leaf(node) or 0 in node.shape:
        return node
    wanted = [(source, source.device or device) for source in node.src]
    for source, where in wanted:
        if source.device is None:
            _settle_constants(source, where, settled)
    sources = tuple(settled[key] for key in wanted)
    if node.op is Op.COPY:
        return g.copy_to(sources[0], device)
    if sources == node.src:
        return node
    return g.make(node.op, sources, node.arg, node.shape, node.dtype)


def _settle_constants(root: Node, device: str, settled: dict[tuple[Node, str], Node]) -> None:
    """Put a node that lies on no device, and what it is made of, on one."""
    for node in topological([root]):
        if (node, device) in settled:
            continue
        if 0 in node.shape:
            settled[node, device] = node
        elif node.src:
            sources = tuple(settled[source, device] for source in node.src)
            settled[node, device] = g.make(node.op, sources, node.arg, node.shape, node.dtype)
        else:
            settled[node, device] = g.placed(node, device)


def gathered(steps: Sequence[Step], is_leaf_place: Callable[[int], bool]) -> list[Step]:
    """The steps in another order: those of a device together, and transfers together.

    Each piece is one submission and each change of device a wait. Steps that share a buffer, which
    is no leaf, keep their order; of the others, what can go on where the last one ran comes first,
    then kernels elsewhere, and transfers only once nothing else is left.
    """
    after: list[set[int]] = []
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        shared = [b for b in step.buffers if not is_leaf_place(b)]
        after.append({last[b] for b in shared if b in last})
        last.update(dict.fromkeys(shared, number))
    order: list[int] = []
    done: set[int] = set()
    left = list(range(len(steps)))
    where = ""
    while left:
        ready = [number for number in left if after[number] <= done]
        kernels = [number for number in ready if steps[number].code >= 0]
        same = [number for number in kernels if steps[number].device == where]
        chosen = same or kernels[:1] or _together(ready, steps)
        order += chosen
        done.update(chosen)
        left = [number for number in left if number not in done]
        where = steps[chosen[-1]].device if kernels else ""
    return [steps[number] for number in order]


def _together(transfers: Sequence[int], steps: Sequence[Step]) -> list[int]:
    """The transfers that go where the first one goes."""
    return [number for number in transfers if steps[number].device == steps[transfers[0]].device]
