"""The instruction level: typed values in static single assignment, in structured regions.

A `Region` is a list of instructions. `loop` and `if` own regions; everything else is a plain
operation whose operands dominate it. Elementary functions (`exp`, `sin`, …) stay one instruction
here: each target's text level decides between its hardware's and our polynomial.

`Builder` folds constants, finds common subexpressions, and places each pure instruction in the
outermost region in which its operands exist, so that loop-invariant code is never written inside a
loop.

    b = Builder()
    x = b.pointer(0)
    with b.loop(0, 64, 16) as i:
        v = b.load("f32", 16, x, i)
        b.store(b.op("fadd", v, v), x, i)
    print(show(b.finish()))
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

BITS = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "f32": 32, "f64": 64, "ptr": 64,
}  # fmt: skip

# Operations without effects, whose result depends on the operands alone: these may move and merge.
BINARY = frozenset({
    "add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and", "or", "xor", "shl", "lshr", "ashr",
    "fadd", "fsub", "fmul", "fdiv", "fmod", "pow", "atan2", "copysign", "fmaximum", "fminimum",
    "smax", "smin", "umax", "umin",
})  # fmt: skip
UNARY = frozenset({
    "fneg", "fabs", "sqrt", "floor", "ceil", "trunc", "roundeven", "exp", "exp2", "expm1", "log",
    "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf",
})  # fmt: skip
CASTS = frozenset({
    "sext", "zext", "itrunc", "fptrunc", "fpext", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast",
})  # fmt: skip
# What a reduction over lanes, or over partial results, does.
COMBINE = frozenset({
    "fadd", "fmul", "fmaximum", "fminimum", "add", "mul", "smax", "smin", "umax", "umin", "and",
    "or",
})  # fmt: skip


@dataclass(eq=False, slots=True)
class Value:
    """One instruction and its result.

    `lanes` is 1 for a scalar; `kind` is "" where there is no result.
    """

    op: str
    kind: str
    lanes: int
    args: tuple[Value, ...]
    attr: Any
    depth: int
    """How many loops and branches enclose the region it lies in."""
    regions: tuple[Region, ...] = ()
    number: int = -1

    @property
    def is_constant(self) -> bool:
        return self.op == "const"


@dataclass(eq=False, slots=True)
class Region:
    """Instructions in order. `arguments` exist at entry, `results` are what the region hands on."""

    depth: int
    values: list[Value] = field(default_factory=list)
    arguments: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    known: dict[Any, Value] = field(default_factory=dict)


class Builder:
    """Writes instructions into the innermost open region. Values belong to one builder."""

    def __init__(self) -> None:
        self._open: list[Region] = [Region(0)]
        self._guards: list[int] = [0]

    # --- plain instructions ----------------------------------------------------------------------

    def _pure(
        self,
        op: str,
        kind: str,
        lanes: int,
        args: tuple[Value, ...],
        attr: Any = None,
        least: int = 0,
    ) -> Value:
        depth = max((a.depth for a in args), default=0)
        depth = max(depth, least)
        region = self._open[depth]
        key = (op, kind, lanes, attr, args)
        found = region.known.get(key)
        if found is None:
            found = region.known[key] = Value(op, kind, lanes, args, attr, depth)
            region.values.append(found)
        return found

    def _effect(
        self, op: str, args: tuple[Value, ...], attr: Any, kind: str = "", lanes: int = 0
    ) -> Value:
        value = Value(op, kind, lanes, args, attr, len(self._open) - 1)
        self._open[-1].values.append(value)
        return value

    def const(self, kind: str, value: bool | int | float, lanes: int = 1) -> Value:
        """A constant; the same number in each lane.

        Integers wrap into the type, signed but for i1, so that each bit pattern has one constant.
        """
        number = float(value) if kind[0] == "f" else _wrap(int(value), kind)
        return self._pure("const", kind, lanes, (), repr(number))

    def iota(self, kind: str, lanes: int, start: int = 0, step: int = 1) -> Value:
        """start, start+step, … one number a lane."""
        return self._pure("iota", kind, lanes, (), (start, step))

    def pointer(self, slot: int) -> Value:
        """The address in argument `slot`."""
        return self._pure("argument", "ptr", 1, (), slot)

    def scratch(self, name: str, size_bytes: int) -> Value:
        """The address of memory of this call's own, 64-byte aligned, with undefined content."""
        return self._pure("scratch", "ptr", 1, (), (name, size_bytes))

    def grid_index(self) -> Value:
        """The number of the grid block that runs."""
        return self._pure("grid_index", "i64", 1, ())

    def same_lanes(self, *values: Value) -> tuple[Value, ...]:
        """The values with scalars widened to the widest."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def splat(self, x: Value, lanes: int) -> Value:
        if x.lanes == lanes:
            return x
        assert x.lanes == 1, (x, lanes)
        if x.is_constant:
            return self._pure("const", x.kind, lanes, (), x.attr)
        return self._pure("splat", x.kind, lanes, (x,))

    def op(self, op: str, *args: Value) -> Value:
        """A unary or binary operation; scalars meet vectors lane by lane."""
        args = self.same_lanes(*args)
        assert op in (BINARY if len(args) == 2 else UNARY), op
        assert all(a.kind == args[0].kind for a in args), (op, args)
        folded = _fold(self, op, args)
        return folded or self._pure(op, args[0].kind, args[0].lanes, args)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        a, b, c = self.same_lanes(a, b, c)
        return self._pure("fma", a.kind, a.lanes, (a, b, c))

    def compare(self, op: str, predicate: str, a: Value, b: Value) -> Value:
        """`icmp` or `fcmp` with LLVM's predicate names; gives i1."""
        a, b = self.same_lanes(a, b)
        if a.is_constant and b.is_constant and op == "icmp":
            return self.const("i1", _compare(predicate, int(a.attr), int(b.attr)), a.lanes)
        return self._pure(op, "i1", a.lanes, (a, b), predicate)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if a is b:
            return a
        if condition.is_constant:
            return a if condition.attr == "1" else b
        condition, a, b = self.same_lanes(condition, a, b)
        return self._pure("select", a.kind, a.lanes, (condition, a, b))

    def cast(self, op: str, x: Value, kind: str) -> Value:
        assert op in CASTS, op
        if x.is_constant and op in ("sext", "zext", "itrunc", "sitofp", "uitofp"):
            number = int(x.attr)
            if op in ("zext", "uitofp"):
                number &= (1 << BITS[x.kind]) - 1
            elif x.kind == "i1" and op in ("sext", "sitofp"):
                number = -number
            return self.const(kind, number, x.lanes)
        if x.is_constant and op == "fpext":
            return self.const(kind, _rounded(float(x.attr), x.kind), x.lanes)
        return self._pure(op, kind, x.lanes, (x,))

    def extract(self, x: Value, lane: int) -> Value:
        if x.lanes == 1:
            return x
        if x.op in ("splat", "const"):
            return x.args[0] if x.args else self._pure("const", x.kind, 1, (), x.attr)
        if x.op == "iota":
            return self.const(x.kind, x.attr[0] + lane * x.attr[1])
        return self._pure("extract", x.kind, 1, (x,), lane)

    def insert(self, x: Value, scalar: Value, lane: int) -> Value:
        return self._pure("insert", x.kind, x.lanes, (x, scalar), lane)

    def shuffle(self, a: Value, b: Value, picks: Sequence[int]) -> Value:
        """Lane j of the result is lane picks[j] of the concatenation of `a` and `b`."""
        if len(picks) == 1:
            lane = picks[0]
            return self.extract(a, lane) if lane < a.lanes else self.extract(b, lane - a.lanes)
        return self._pure("shuffle", a.kind, len(picks), (a, b), tuple(picks))

    def combine(self, op: str, x: Value) -> Value:
        """One scalar from all lanes; the order is a fixed tree."""
        assert op in COMBINE, op
        return x if x.lanes == 1 else self._pure("combine", x.kind, 1, (x,), op)

    # --- memory ----------------------------------------------------------------------------------

    def address(self, base: Value, index: Value, size_bytes: int, constant: int = 0) -> Value:
        """`base + (index + constant)*size_bytes`; an address for each lane of `index`."""
        where = self._pure("address", "ptr", index.lanes, (base, index), size_bytes)
        if constant:
            where = self._pure("offset", "ptr", where.lanes, (where,), constant * size_bytes)
        return where

    def load(
        self, kind: str, lanes: int, address: Value, *, align: int, invariant: bool = False
    ) -> Value:
        """`lanes` neighbours.

        `invariant`: nothing writes there while the kernel runs, so the load may move out of loops.
        It stays inside `when`, whose condition may be what makes the address good.
        """
        if invariant:
            return self._pure("load", kind, lanes, (address,), (align, True), self._guards[-1])
        return self._effect("load", (address,), (align, False), kind, lanes)

    def masked_load(
        self, kind: str, lanes: int, address: Value, mask: Value, *, align: int
    ) -> Value:
        """Lanes whose mask is false are zero and are not read."""
        mask = self.splat(mask, lanes)
        return self._effect("masked_load", (address, mask), align, kind, lanes)

    def gather(self, kind: str, addresses: Value, mask: Value, *, align: int) -> Value:
        """One element for each address; where the mask is false, zero and no read."""
        mask = self.splat(mask, addresses.lanes)
        return self._effect("gather", (addresses, mask), align, kind, addresses.lanes)

    def store(self, value: Value, address: Value, *, align: int, streaming: bool = False) -> None:
        self._effect("store", (value, address), (align, streaming))

    def masked_store(self, value: Value, address: Value, mask: Value, *, align: int) -> None:
        self._effect("masked_store", (value, address, self.splat(mask, value.lanes)), align)

    def scatter(self, value: Value, addresses: Value, mask: Value, *, align: int) -> None:
        """Lanes in order; a later lane wins."""
        addresses, value, mask = self.same_lanes(addresses, value, mask)
        self._effect("scatter", (value, addresses, mask), align)

    def fence(self) -> None:
        """Every later load of the block sees what was stored so far, by whichever lane."""
        self._effect("fence", (), None)

    def prefetch(self, address: Value) -> None:
        self._effect("prefetch", (address,), None)

    # --- regions ---------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, start: Value, stop: Value, step: int, carried: Sequence[Value] = ()
    ) -> Iterator[Loop]:
        """`for (i = start; i < stop; i += step)`, at least once, with values carried round.

        Inside, `loop.index` and `loop.carried` are this round's; set `loop.next` before leaving.
        Afterwards `loop.results` are the last round's.
        """
        depth = len(self._open)
        index = Value("index", "i64", 1, (), None, depth)
        arguments = tuple(Value("carried", c.kind, c.lanes, (), None, depth) for c in carried)
        region = Region(depth, arguments=(index, *arguments))
        loop = Loop(index, arguments)
        self._open.append(region)
        yield loop
        assert self._open.pop() is region and len(loop.next) == len(arguments), loop
        region.results = tuple(loop.next)
        owner = self._effect("loop", (start, stop, *carried), step)
        owner.regions = (region,)
        loop.results = tuple(
            self._effect("result", (owner,), i, c.kind, c.lanes) for i, c in enumerate(carried)
        )

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Instructions that run only if the scalar `condition` holds."""
        region = Region(len(self._open))
        self._open.append(region)
        self._guards.append(region.depth)
        yield
        self._guards.pop()
        assert self._open.pop() is region
        self._effect("if", (condition,), None).regions = (region,)

    def finish(self) -> Region:
        """The program, with dead instructions dropped and the rest numbered."""
        assert len(self._open) == 1
        return _number(_drop_dead(self._open[0]))


@dataclass(eq=False, slots=True)
class Loop:
    """What the body of a loop sees; see `Builder.loop`."""

    index: Value
    carried: tuple[Value, ...]
    next: Sequence[Value] = ()
    results: tuple[Value, ...] = ()


def _rounded(number: float, kind: str) -> float:
    """The value that a constant written as `number` has in its type."""
    code = {"f16": "e", "f32": "f", "f64": "d"}[kind]
    try:
        rounded: float = struct.unpack(code, struct.pack(code, number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def _wrap(number: int, kind: str) -> int:
    """The number that the type's low bits of `number` stand for: signed, but 0 or 1 for i1."""
    bits = BITS[kind]
    number &= (1 << bits) - 1
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def _compare(predicate: str, a: int, b: int) -> bool:
    if predicate[0] == "u" and predicate != "une":
        a, b = a & 0xFFFF_FFFF_FFFF_FFFF, b & 0xFFFF_FFFF_FFFF_FFFF
    name = predicate.lstrip("us")
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]


def _fold(b: Builder, op: str, args: tuple[Value, ...]) -> Value | None:
    """Integer arithmetic on constants, and identities that hold for every value of the type."""
    if len(args) != 2 or args[0].kind == "ptr":
        return None
    x, y = args
    if x.is_constant and y.is_constant and op in ("add", "sub", "mul", "and", "or", "xor", "shl"):
        p, q = int(x.attr), int(y.attr)
        if op == "shl" and not 0 <= q < BITS[x.kind]:
            return None
        result = {
            "add": p + q, "sub": p - q, "mul": p * q, "and": p & q, "or": p | q, "xor": p ^ q,
            "shl": p << q if op == "shl" else 0,
        }[op]  # fmt: skip
        return b.const(x.kind, _wrap(result, x.kind), x.lanes)
    if y.is_constant:
        if y.attr == "0" and op in ("add", "sub", "or", "xor", "shl", "lshr", "ashr"):
            return x
        if y.attr == "1" and op in ("mul", "sdiv", "udiv") and x.kind != "i1":
            return x
        if y.attr == "0" and op in ("mul", "and"):
            return y
        if y.attr == "1.0" and op in ("fmul", "fdiv"):
            return x
        if y.attr == "-0.0" and op == "fadd":
            return x
        if y.attr == "0.0" and op == "fsub":
            return x
    if x.is_constant:
        if (x.attr == "0" and op in ("add", "or", "xor")) or (
            x.attr == "1" and op == "mul" and x.kind != "i1"
        ):
            return y
        if x.attr == "0" and op in ("mul", "and"):
            return x
        if (x.attr == "1.0" and op == "fmul") or (x.attr == "-0.0" and op == "fadd"):
            return y
    return None


_EFFECTS = frozenset(["store", "masked_store", "scatter", "prefetch", "fence", "loop", "if"])


def _drop_dead(root: Region) -> Region:
    """Remove what no effect needs. Loops are kept: each one stores or carries what is asked for."""
    live: set[Value] = set()

    def mark(value: Value) -> None:
        stack = [value]
        while stack:
            v = stack.pop()
            if v not in live:
                live.add(v)
                stack.extend(v.args)

    def visit(region: Region) -> None:
        for result in region.results:
            mark(result)
        for value in reversed(region.values):
            if value.op in _EFFECTS or value in live:
                mark(value)
                for inner in value.regions:
                    visit(inner)

    def sweep(region: Region) -> None:
        region.values = [v for v in region.values if v in live]
        region.known.clear()
        for value in region.values:
            for inner in value.regions:
                sweep(inner)

    visit(root)
    sweep(root)
    return root


def _number(root: Region) -> Region:
    count = 0

    def visit(region: Region) -> None:
        nonlocal count
        for value in (*region.arguments, *region.values):
            if value.kind:
                value.number = count
                count += 1
            for inner in value.regions:
                visit(inner)

    visit(root)
    return root


def show(root: Region) -> str:
    """The program as text, one instruction a line."""
    lines: list[str] = []

    def name(v: Value) -> str:
        return v.attr if v.op == "const" and v.lanes == 1 else f"%{v.number}"

    def type_(v: Value) -> str:
        return v.kind if v.lanes == 1 else f"{v.kind}x{v.lanes}"

    def visit(region: Region, indent: str) -> None:
        for v in region.values:
            if v.op == "const" and v.lanes == 1:
                continue
            args = " ".join(name(a) for a in v.args)
            if v.op == "loop":
                start, stop, *carried = v.args
                inner = v.regions[0]
                index = f"%{inner.arguments[0].number}"
                head = f"loop {index} = {name(start)} to {name(stop)} step {v.attr}"
                pairs = zip(inner.arguments[1:], carried, strict=True)
                head += "".join(f", {name(a)} = {name(c)}" for a, c in pairs)
                lines.append(indent + head)
                visit(inner, indent + "  ")
                if inner.results:
                    lines.append(indent + "  next " + " ".join(map(name, inner.results)))
            elif v.op == "if":
                lines.append(f"{indent}if {args}")
                visit(v.regions[0], indent + "  ")
            else:
                left = f"%{v.number}: {type_(v)} = " if v.kind else ""
                attr = "" if v.attr is None else f" {v.attr}"
                lines.append(f"{indent}{left}{v.op}{attr} {args}".rstrip())

    visit(root, "")
    return "\n".join(lines)
