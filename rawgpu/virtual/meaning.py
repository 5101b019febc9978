"""Evaluates the meanings of instructions over any kind of lanes.

The words of `describe.semantics` are written here once, in terms of the few primitives of a
`LaneOps`: NumPy arrays (`interpret.py`) compute at once, LLVM values (`lift.py`) write code. So
both engines share each meaning down to the last bit. A vendor's machine adds the words that need
registers, memory and control flow by subclassing `Evaluator` in `meaning_small.py`;
`meaning_bits.py` has the words on integers, `meaning_float.py` those on floats.

A value in one lane, as of a scalar register, and a value in all lanes mix freely: the primitives
broadcast.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rawgpu.describe.semantics import Statement

Raw = Any
"""A value of the engine: an array of NumPy, a value of LLVM."""


class NotInEngine(NotImplementedError):
    """A word, type or mode that this engine does not do; the text names it."""


class NotInNative(NotInEngine):
    """What no native code can follow: all that runs with it is for the interpreter."""


@dataclass(slots=True)
class Typed:
    """A value with its type.

    Attributes:
        kind: "u", "i" integers, "f" floats, "bf" bfloat16 held as float32, "b" booleans, "n" a
            plain number, "w" words: a list of 32-bit raws, "a" an address.
        bits: the width; 0 for plain numbers.
        raw: the engine's value.
    """

    kind: str
    bits: int
    raw: Raw


class LaneOps(Protocol):
    """The primitives. Operands have equal widths; results keep them unless the name says else."""

    def const(self, kind: str, bits: int, number: float) -> Raw: ...
    def binary(self, op: str, bits: int, a: Raw, b: Raw) -> Raw:
        """Add sub mul and or xor shl lshr ashr umin umax smin smax fadd fsub fmul fdiv."""
        ...

    def unary(self, op: str, bits: int, a: Raw) -> Raw:
        """Fneg fabs sqrt floor ceil trunc roundeven popcount clz ctz bitreverse."""
        ...

    def compare(self, relation: str, bits: int, a: Raw, b: Raw) -> Raw:
        """Relations of LLVM: eq ne ult ule slt sle, oeq une olt ole uno ord."""
        ...

    def fma(self, bits: int, a: Raw, b: Raw, c: Raw) -> Raw: ...
    def select(self, condition: Raw, a: Raw, b: Raw) -> Raw: ...
    def both(self, a: Raw, b: Raw) -> Raw: ...
    def either(self, a: Raw, b: Raw) -> Raw: ...
    def invert(self, a: Raw) -> Raw: ...
    def resize(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw: ...
    def to_float(self, a: Raw, bits: int) -> Raw:
        """The same bits as a float."""
        ...

    def to_bits(self, a: Raw, bits: int) -> Raw: ...
    def int_to_float(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw: ...
    def float_to_int(self, a: Raw, bits: int, to_bits: int, *, signed: bool) -> Raw:
        """Towards zero; `a` is in range."""
        ...

    def float_resize(self, a: Raw, bits: int, to_bits: int) -> Raw: ...
    def bool_to_int(self, a: Raw, bits: int) -> Raw: ...
    def mul_high(self, a: Raw, b: Raw, bits: int, *, signed: bool) -> Raw: ...
    def maths(self, name: str, bits: int, a: Raw) -> Raw:
        """An elementary function of `compiler_bridge.maths`."""
        ...


BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or",
    ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
COMPARE = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
CONTAINER = {4: 32, 24: 32}
"""Views that are held in a wider integer."""


class EvaluatorCore:
    """Names, operators, views and the words on bits. `ops` is the engine."""

    def __init__(self, ops: LaneOps) -> None:
        self.ops = ops
        self.arithmetic = ops
        """The same, but that its results are rounded as the mode has it."""
        self.names: dict[str, Typed] = {}
        self.saturate = False
        """The instruction's clamp bit, for integers."""

    # Running.

    def run(self, statements: tuple[Statement, ...]) -> Mapping[str, Typed]:
        """Evaluate in order; what was assigned, by target."""
        self.names = {}
        for statement in statements:
            value = self.value(statement.value)
            if statement.target is not None:
                assert value is not None, statement
                self.names[statement.target] = value
        return self.names

    def lookup(self, name: str) -> Typed:
        """An operand or a state."""
        raise NotInEngine(name)

    def value(self, node: ast.expr) -> Typed:
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            return self.lookup(node.id) if known is None else known
        if isinstance(node, ast.Constant):
            return Typed("n" if isinstance(node.value, int) else "text", 0, node.value)
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name), node
            return self.call(node.func.id, node.args)
        if isinstance(node, ast.BinOp):
            return self.operator(type(node.op), self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            op = COMPARE[type(node.ops[0])]
            return self.relation(op, self.value(node.left), self.value(node.comparators[0]))
        assert isinstance(node, ast.UnaryOp), node
        return self.unary(node.op, self.value(node.operand))

    def call(self, word: str, arguments: list[ast.expr]) -> Typed:
        method: Callable[..., Typed] | None = getattr(self, f"word_{word}", None)
        if method is not None:
            return method(*map(self.value, arguments))
        if word[0] in "uif" and word[1:].isdigit():
            return self.view(word[0], int(word[1:]), self.value(arguments[0]))
        raise NotInEngine(word)

    # Types.

    def const(self, kind: str, bits: int, number: float) -> Typed:
        return Typed(kind, bits, self.ops.const(kind, bits, number))

    def truth(self, x: Typed) -> Raw:
        """A condition: a boolean, or whether an integer is not zero."""
        if x.kind == "b":
            return x.raw
        x = self.solid(x)
        return self.ops.compare("ne", x.bits, x.raw, self.ops.const("u", x.bits, 0))

    def solid(self, x: Typed, bits: int = 32) -> Typed:
        """An integer or float that has a width; plain numbers and booleans get `bits`."""
        if x.kind == "n":
            return self.const("u", bits, x.raw)
        if x.kind == "b":
            return Typed("u", bits, self.ops.bool_to_int(x.raw, bits))
        if x.kind == "w":
            return self.view("u", min(x.bits, 64), x)
        return x

    def as_bits(self, x: Typed, bits: int) -> Raw:
        """The low `bits` of any value, as an unsigned integer of the engine."""
        if x.kind == "bf":
            x = self.bfloat_bits(x)
        x = self.solid(x, bits)
        raw = self.ops.to_bits(x.raw, x.bits) if x.kind == "f" else x.raw
        return self.ops.resize(raw, x.bits, bits, signed=x.kind == "i")

    def bfloat_bits(self, x: Typed) -> Typed:
        """The 16 bits of a bfloat16 that is held as a float32."""
        raise NotInEngine("bfloat16")

    def words_of(self, x: Typed, count: int) -> list[Raw]:
        """Any value as 32-bit words, low first."""
        if x.kind == "w":
            raws = list(x.raw)
            return raws[:count] + [self.ops.const("u", 32, 0)] * (count - len(raws))
        if count == 1:
            return [self.as_bits(x, 32)]
        wide = self.as_bits(x, 64)
        ops = self.ops
        high = ops.binary("lshr", 64, wide, ops.const("u", 64, 32))
        words = [ops.resize(wide, 64, 32, signed=False), ops.resize(high, 64, 32, signed=False)]
        return words + [ops.const("u", 32, 0)] * (count - 2)

    def joined(self, low: Raw, high: Raw) -> Raw:
        """Two 32-bit words as 64 bits."""
        ops = self.ops
        wide = ops.resize(high, 32, 64, signed=False)
        wide = ops.binary("shl", 64, wide, ops.const("u", 64, 32))
        return ops.binary("or", 64, wide, ops.resize(low, 32, 64, signed=False))

    def view(self, kind: str, bits: int, x: Typed) -> Typed:
        """Bits as a type: the low ones of a wider value; a narrower one is extended."""
        ops = self.ops
        if kind == "f":
            if x.kind == "f" and x.bits == bits:
                return x
            return self.flushed(Typed("f", bits, ops.to_float(self.as_bits(x, bits), bits)))
        if x.kind == "w":
            words = x.raw
            raw = self.joined(words[0], words[1]) if bits == 64 else words[0]
            x = Typed("u", 64 if bits == 64 else 32, raw)
        if x.kind == "n":
            return self.const(kind, CONTAINER.get(bits, bits), x.raw)
        if x.kind == "b":
            return Typed(kind, bits, ops.bool_to_int(x.raw, bits))
        if x.kind == "f":
            x = Typed("u", x.bits, ops.to_bits(x.raw, x.bits))
        if bits in (4, 24):
            return self._odd_view(kind, bits, x)
        return Typed(kind, bits, ops.resize(x.raw, x.bits, bits, signed=x.kind == "i"))

    def _odd_view(self, kind: str, bits: int, x: Typed) -> Typed:
        ops = self.ops
        raw = ops.resize(x.raw, x.bits, 32, signed=False)
        count = ops.const("u", 32, 32 - bits)
        raw = ops.binary("shl", 32, raw, count)
        return Typed(kind, 32, ops.binary("lshr" if kind == "u" else "ashr", 32, raw, count))

    def flushed(self, x: Typed) -> Typed:
        """A float as the mode's denormals have it."""
        return x

    def pair(self, a: Typed, b: Typed) -> tuple[str, int, Raw, Raw]:
        """Both values at their common type."""
        if a.kind in "nb" and b.kind in "nb":
            a = self.solid(a)
        if a.kind in "nb":
            a = self._like(a, b)
        elif b.kind in "nb":
            b = self._like(b, a)
        a, b = self.solid(a), self.solid(b)
        if a.kind == "bf" or b.kind == "bf":
            raise NotInEngine("arithmetic in bfloat16")
        bits = max(a.bits, b.bits)
        if a.kind != "f" and a.bits != bits:
            a = self.view(a.kind, bits, a)
        if b.kind != "f" and b.bits != bits:
            b = self.view(b.kind, bits, b)
        assert (a.kind == "f") == (b.kind == "f") and a.bits == b.bits, (a.kind, a.bits, b)
        return a.kind, bits, a.raw, b.raw

    def _like(self, x: Typed, model: Typed) -> Typed:
        model = self.solid(model)
        if x.kind == "b":
            return Typed(model.kind, model.bits, self.ops.bool_to_int(x.raw, model.bits))
        return self.const(model.kind, model.bits, x.raw)

    # Operators.

    def operator(self, op: type[ast.operator], a: Typed, b: Typed) -> Typed:
        if a.kind == "a":
            return self.moved(a, self._number(b))
        if op in (ast.LShift, ast.RShift):
            return self._shift(op is ast.LShift, a, b)
        name = BINARY[op]
        if a.kind == b.kind == "n":
            return Typed("n", 0, _PLAIN[name](a.raw, b.raw))
        if a.kind == b.kind == "b" and name in ("and", "or", "xor"):
            return Typed("b", 1, self._logic(name, a.raw, b.raw))
        kind, bits, x, y = self.pair(a, b)
        if kind == "f":
            return self.rounded(Typed("f", bits, self.arithmetic.binary("f" + name, bits, x, y)))
        return Typed(kind, bits, self.ops.binary(name, bits, x, y))

    def _number(self, x: Typed) -> int:
        assert x.kind == "n", x
        return int(x.raw)

    def moved(self, address: Typed, by: int) -> Typed:
        """An address, `by` bytes further."""
        raise NotInEngine("address arithmetic")

    def _logic(self, name: str, a: Raw, b: Raw) -> Raw:
        if name == "xor":
            different = self.ops.invert(b)
            return self.ops.either(
                self.ops.both(a, different), self.ops.both(self.ops.invert(a), b)
            )
        return self.ops.both(a, b) if name == "and" else self.ops.either(a, b)

    def rounded(self, x: Typed) -> Typed:
        """A float result: what the mode does to it."""
        return self.flushed(x)

    def _shift(self, left: bool, a: Typed, b: Typed) -> Typed:
        if a.kind == "n" and b.kind == "n":
            return Typed("n", 0, a.raw << b.raw if left else a.raw >> b.raw)
        if a.kind == "w":
            skip, rest = divmod(self._number(b), 32)
            assert not left and not rest, "words are shifted by whole words"
            return self._cut(a, skip)
        a = self.solid(a)
        if a.kind == "f":
            a = self.view("u", a.bits, a)
        count = self.view("u", a.bits, self.solid(b, a.bits)) if b.kind != "n" else b
        raw = self.ops.const("u", a.bits, b.raw) if b.kind == "n" else count.raw
        name = "shl" if left else ("ashr" if a.kind == "i" else "lshr")
        return Typed(a.kind, a.bits, self.ops.binary(name, a.bits, a.raw, raw))

    def _cut(self, x: Typed, skip: int) -> Typed:
        rest = x.raw[skip:]
        if len(rest) == 1:
            return Typed("u", 32, rest[0])
        return Typed("w", 32 * len(rest), rest)

    def relation(self, op: str, a: Typed, b: Typed) -> Typed:
        if a.kind == b.kind == "n":
            return Typed("n", 0, int(_PLAIN[op](a.raw, b.raw)))
        kind, bits, x, y = self.pair(a, b)
        if op in ("gt", "ge"):
            op, x, y = {"gt": "lt", "ge": "le"}[op], y, x
        if kind == "f":
            name = "une" if op == "ne" else "o" + op
        else:
            name = op if op in ("eq", "ne") else ("s" if kind == "i" else "u") + op
        return Typed("b", 1, self.ops.compare(name, bits, x, y))

    def unary(self, op: ast.unaryop, x: Typed) -> Typed:
        if x.kind == "n":
            return Typed("n", 0, ~x.raw if isinstance(op, ast.Invert) else -x.raw)
        if x.kind == "b":
            return Typed("b", 1, self.ops.invert(x.raw))
        x = self.solid(x)
        if isinstance(op, ast.Invert):
            ones = self.ops.const("u", x.bits, (1 << x.bits) - 1)
            return Typed(x.kind, x.bits, self.ops.binary("xor", x.bits, x.raw, ones))
        if x.kind == "f":
            return Typed("f", x.bits, self.ops.unary("fneg", x.bits, x.raw))
        zero = self.ops.const("u", x.bits, 0)
        return Typed(x.kind, x.bits, self.ops.binary("sub", x.bits, zero, x.raw))


_PLAIN: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
