"""What builders of kernels share: slots, names of axes, references turned into loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frontend.dtype import DType
from frontend.graph.node import Node, Op
from frontend.loops import expr as ex
from frontend.loops import nest as ln
from frontend.loops.affine import narrowed
from frontend.loops.expr import Expr
from frontend.loops.index import Index, Var, flatten
from frontend.schedule.body import Body, Ref

_ARG = (Op.ARGMAX, Op.ARGMIN)


class Slots:
    """Buffers of a kernel being built."""

    def __init__(self) -> None:
        self.slots: list[ln.Slot] = []
        self.nodes: list[Node] = []
        self._of: dict[Node, int] = {}

    def outside(self, node: Node, role: ln.Role) -> int:
        """The slot of a node in device memory."""
        found = self._of.get(node)
        if found is None:
            found = self._of[node] = self.local(role, node.dtype, node.size)
            self.nodes.append(node)
        return found

    def local(self, role: ln.Role, dtype: DType, size: int) -> int:
        self.slots.append(ln.Slot(role, dtype, size))
        return len(self.slots) - 1


class Rename(ex.Substitution):
    """Renames axes, and turns references to kept nodes into loads.

    `inside` is asked first, and may make something else of a reference.
    """

    def __init__(
        self,
        values: dict[Var, Index],
        slots: Slots,
        inside: Callable[[Ref, tuple[Index, ...]], Expr | None] = lambda ref, indices: None,
    ) -> None:
        super().__init__(values)
        self._slots = slots
        self._inside = inside

    def _rebuild(self, e: Expr) -> Expr:
        if isinstance(e, Ref):
            indices = tuple(i.substitute(self.values) for i in e.indices)
            made = self._inside(e, indices)
            if made is not None:
                return made
            slot = self._slots.outside(e.node, ln.Role.INPUT)
            return ex.Load(slot, flatten(indices, e.node.shape), e.dtype)
        return narrowed(super()._rebuild(e))


def named(axes: Sequence[Var], letter: str) -> tuple[Var, ...]:
    return tuple(Var(f"{letter}{i}", v.extent) for i, v in enumerate(axes))


def values_of(old: Sequence[Var], new: Sequence[Var]) -> dict[Var, Index]:
    return {a: Index.of(b) for a, b in zip(old, new, strict=True)}


def name_of(word: str, *shapes: Sequence[int]) -> str:
    parts = ["x".join(map(str, shape)) or "1" for shape in shapes]
    return "_".join([word, *parts])


def reduction_of(body: Body, value: Expr, reduce: tuple[Var, ...]) -> ln.Reduction:
    node = body.fold or body.node
    axis = reduce[0] if node.op in _ARG else None
    return ln.Reduction(node.op, value, node.dtype, axis)
