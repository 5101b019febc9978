"""What one point of a loop nest computes: scalar expressions over loop variables.

Expressions form a DAG, shared by identity; each knows the loop variables it depends on, so that
lowering computes it once for all points that agree on those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from frontend.dtype import DType
from frontend.graph.node import Op
from frontend.loops.index import Condition, Index, Var


class Expr:
    """A value at a point.

    `variables`: the loop variables that it depends on. `depth`: how many expressions stand on top
    of one another in it; what rewrites expressions recurses as deep.
    """

    __slots__ = ("depth", "dtype", "variables")

    dtype: DType
    variables: frozenset[Var]
    depth: int

    @property
    def parts(self) -> tuple[Expr, ...]:
        return ()


class Load(Expr):
    """Element `index` of buffer `slot`."""

    __slots__ = ("index", "slot")

    def __init__(self, slot: int, index: Index, dtype: DType) -> None:
        self.slot, self.index, self.dtype, self.depth = slot, index, dtype, 1
        self.variables = frozenset(index.variables())


class Constant(Expr):
    """A number."""

    __slots__ = ("value",)

    def __init__(self, value: bool | int | float, dtype: DType) -> None:
        self.value, self.dtype, self.depth = value, dtype, 1
        self.variables = frozenset()


class IndexValue(Expr):
    """An index as a number."""

    __slots__ = ("index",)

    def __init__(self, index: Index, dtype: DType) -> None:
        self.index, self.dtype, self.depth = index, dtype, 1
        self.variables = frozenset(index.variables())


class Alu(Expr):
    """An elementwise operation of level 1."""

    __slots__ = ("args", "op")

    def __init__(self, op: Op, args: tuple[Expr, ...], dtype: DType) -> None:
        self.op, self.args, self.dtype = op, args, dtype
        self.variables = frozenset().union(*(a.variables for a in args))
        self.depth = 1 + max(a.depth for a in args)

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args


class Masked(Expr):
    """`value` where all conditions hold, else `otherwise`.

    Where they do not hold, `value` reads nothing.
    """

    __slots__ = ("conditions", "otherwise", "value")

    def __init__(self, conditions: tuple[Condition, ...], value: Expr, otherwise: Expr) -> None:
        self.conditions, self.value, self.otherwise = conditions, value, otherwise
        self.dtype, self.depth = value.dtype, 1 + max(value.depth, otherwise.depth)
        self.variables = value.variables.union(*(c.index.variables() for c in conditions))

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.value, self.otherwise)


class Lookup(Expr):
    """`value` with `var` bound to what `position` computes; zero where that is outside.

    How gathers read: the position is data, and inside `value` it is an index like any other.
    """

    __slots__ = ("position", "value", "var")

    def __init__(self, var: Var, position: Expr, value: Expr) -> None:
        self.var, self.position, self.value = var, position, value
        self.dtype, self.depth = value.dtype, 1 + max(value.depth, position.depth)
        self.variables = (value.variables - {var}) | position.variables

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.position, self.value)


class Accumulated(Expr):
    """The result, or running value, of reduction `number` of the nest."""

    __slots__ = ("number",)

    def __init__(self, number: int, dtype: DType) -> None:
        self.number, self.dtype, self.depth = number, dtype, 1
        self.variables = frozenset()


def walk(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Each expression below `roots` once, users before what they use."""
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            yield e
            stack.extend(reversed(e.parts))


class Substitution:
    """Rewrites loop variables in expressions; shared parts stay shared."""

    def __init__(
        self, values: Mapping[Var, Index], slots: Mapping[Load, Load] | None = None
    ) -> None:
        self.values = values
        self.slots = slots or {}
        self._done: dict[Expr, Expr] = {}

    def __call__(self, e: Expr) -> Expr:
        made = self._done.get(e)
        if made is None:
            made = self._done[e] = self._rebuild(e)
        return made

    def _rebuild(self, e: Expr) -> Expr:
        values = self.values
        if isinstance(e, Load):
            if e in self.slots:
                return self.slots[e]
            index = e.index.substitute(values)
            return e if index == e.index else Load(e.slot, index, e.dtype)
        if isinstance(e, IndexValue):
            return IndexValue(e.index.substitute(values), e.dtype)
        if isinstance(e, Alu):
            return Alu(e.op, tuple(self(a) for a in e.args), e.dtype)
        if isinstance(e, Masked):
            conditions = tuple(c.substitute(values) for c in e.conditions)
            kept = tuple(c for c in conditions if not c.always)
            value = self(e.value)
            return Masked(kept, value, self(e.otherwise)) if kept else value
        if isinstance(e, Lookup):
            return Lookup(e.var, self(e.position), self(e.value))
        return e


def show(e: Expr) -> str:
    """The expression in one line."""
    if isinstance(e, Load):
        return f"b{e.slot}[{e.index}]"
    if isinstance(e, Constant):
        return f"{e.value}"
    if isinstance(e, IndexValue):
        return f"{e.dtype}({e.index})"
    if isinstance(e, Alu):
        name = e.dtype.name if e.op is Op.CAST else e.op.name.lower()
        return f"{name}({', '.join(show(a) for a in e.args)})"
    if isinstance(e, Masked):
        conditions = " and ".join(str(c) for c in e.conditions)
        return f"({show(e.value)} if {conditions} else {show(e.otherwise)})"
    if isinstance(e, Lookup):
        return f"(let {e.var} = {show(e.position)} in {show(e.value)})"
    assert isinstance(e, Accumulated), e
    return f"acc{e.number}"
