"""Generated functions that go through lists: comparisons, and what becomes one instruction."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.amd.virtual.foreign_values import FCMP, ICMP, conversion, pair_of, pattern
from tests.amd.virtual.wave_foreign import BITS, Function, Output, Writer, constant, made

COMPARED = ("double", "float", "half", "i64", "i32", "i16")


def comparisons(seed: int, *, uniform: bool) -> Function:
    """All comparisons of a type, as numbers and as choices."""
    kind = "compare_scalar" if uniform else "compare"
    w = Writer(random.Random(f"{kind} {seed}"), uniform)
    type_ = COMPARED[seed % len(COMPARED)]
    found: list[tuple[str, str]] = []
    for how in FCMP if type_ in ("double", "float", "half") else ICMP:
        x, y = w.some(type_), w.pick(type_, 0.2)
        word = "fcmp" if how in FCMP and type_[0] != "i" else "icmp"
        test = w.hidden(f"{word} {how} {type_} {x}, {y}")
        if len(found) % 2:
            a, b = w.some("i32"), w.pick("i32", 0.4)
            found.append(("i32", w.hidden(f"select i1 {test}, i32 {a}, i32 {b}")))
        else:
            found.append(("i1", test))
    w.store_outputs(found)
    return Function(kind, seed, (w.text(),), tuple(Output(t) for t, _ in found))


def _median(w: Writer, type_: str) -> str:
    sign = w.rng.choice("su")
    x, y, z = w.some(type_), w.some(type_), w.pick(type_, 0.5)

    def op(which: str, a: str, b: str) -> str:
        full = f"llvm.{sign}{which}.{type_}"
        return w.hidden(f"call {type_} @{full}({type_} {a}, {type_} {b})")

    return op("min", op("max", x, y), op("max", op("min", x, y), z))


def _extreme(w: Writer, type_: str) -> str:
    name = w.rng.choice(("smin", "smax", "umin", "umax"))
    value = w.some(type_)
    for _ in range(2):
        full = f"llvm.{name}.{type_}"
        value = w.hidden(f"call {type_} @{full}({type_} {value}, {type_} {w.some(type_)})")
    return value


def _product24(w: Writer, type_: str) -> str:
    signed = w.rng.random() < 0.5
    parts = []
    for value in (w.some("i32"), w.some("i32")):
        if signed:
            up = w.hidden(f"shl i32 {value}, 8")
            parts.append(w.hidden(f"ashr i32 {up}, 8"))
        else:
            parts.append(w.hidden(f"and i32 {value}, 16777215"))
    kind = w.rng.randrange(3)
    if kind == 2:  # the upper half
        ext = "sext" if signed else "zext"
        wide = [w.hidden(f"{ext} i32 {part} to i64") for part in parts]
        product = w.hidden(f"mul i64 {wide[0]}, {wide[1]}")
        high = w.hidden(f"lshr i64 {product}, 32")
        return w.hidden(f"trunc i64 {high} to i32")
    product = w.hidden(f"mul i32 {parts[0]}, {parts[1]}")
    return w.hidden(f"add i32 {product}, {w.pick('i32')}") if kind else product


def _dot(w: Writer, type_: str) -> str:
    """A sum of products of bytes."""
    x, y, total = w.some("i32"), w.some("i32"), w.some("i32")
    for byte in range(4):
        parts = []
        for value in (x, y):
            moved = w.hidden(f"lshr i32 {value}, {8 * byte}")
            parts.append(w.hidden(f"and i32 {moved}, 255"))
        product = w.hidden(f"mul i32 {parts[0]}, {parts[1]}")
        total = w.hidden(f"add i32 {total}, {product}")
    return total


def _two(first: str, second: str, by: int | None = None) -> Callable[[Writer, str], str]:
    """Two operations in a row; the second by a constant where it is a shift."""

    def make(w: Writer, type_: str) -> str:
        inner = w.hidden(f"{first} {type_} {w.some(type_)}, {w.some(type_)}")
        other = w.some(type_) if by is None else str(w.rng.randrange(1, by))
        return w.hidden(f"{second} {type_} {inner}, {other}")

    return make


def _byte_to_float(w: Writer, type_: str) -> str:
    moved = w.hidden(f"lshr i32 {w.some('i32')}, {8 * w.rng.randrange(4)}")
    byte = w.hidden(f"and i32 {moved}, 255")
    number = w.hidden(f"uitofp i32 {byte} to float")
    return w.hidden(f"bitcast float {number} to i32")


def _bit(w: Writer, type_: str) -> str:
    mask = 1 << w.rng.randrange(BITS[type_] - 1)
    if w.rng.random() < 0.4:
        return w.hidden(f"or {type_} {w.some(type_)}, {mask}")
    if w.rng.random() < 0.3:
        return w.hidden(f"and {type_} {w.some(type_)}, {~mask}")
    bit = w.hidden(f"and {type_} {w.some(type_)}, {mask}")
    how = w.rng.choice(("eq", "ne"))
    test = w.hidden(f"icmp {how} {type_} {bit}, 0")
    return w.hidden(f"select i1 {test}, {type_} {w.some(type_)}, {type_} {w.some(type_)}")


def _by_constant(w: Writer, type_: str) -> str:
    number = w.rng.choice((1000, -1234, 30000, -30000, 5, 77))
    op = w.rng.choice(("mul", "add"))
    return w.hidden(f"{op} {type_} {w.some(type_)}, {number}")


def _narrowed(w: Writer, type_: str) -> str:
    narrow = w.rng.choice(("i8", "i16"))
    small = w.hidden(f"trunc i32 {w.some('i32')} to {narrow}")
    if w.rng.random() < 0.5:
        return w.hidden(f"{w.rng.choice(('sext', 'zext'))} {narrow} {small} to i32")
    first = w.hidden(f"trunc i32 {w.some('i32')} to i16")
    pair = w.hidden(f"insertelement <2 x i16> poison, i16 {first}, i32 0")
    high = w.hidden(f"lshr i32 {w.some('i32')}, {w.rng.choice((0, 16))}")
    second = w.hidden(f"trunc i32 {high} to i16")
    pair = w.hidden(f"insertelement <2 x i16> {pair}, i16 {second}, i32 1")
    return w.hidden(f"bitcast <2 x i16> {pair} to i32")


def _shared_pattern(w: Writer, type_: str) -> str:
    before = len(w.values[type_])
    while len(w.values[type_]) == before:
        pattern(w, type_, BITS[type_])
    return w.values[type_][-1]


FUSED: tuple[Callable[[Writer, str], str], ...] = (
    _median, _extreme, _product24, _dot, _two("add", "shl", 16), _two("shl", "add"),
    _two("xor", "add"), _two("xor", "xor"), _byte_to_float, _bit, _by_constant, _narrowed,
    _shared_pattern, _two("mul", "add"), _two("and", "or"), _two("or", "or"), _two("add", "add"),
)  # fmt: skip
ANY_TYPE = (
    _median, _extreme, _two("mul", "add"), _two("add", "add"), _two("xor", "add"), _bit,
    _shared_pattern, _two("add", "shl", 8),
)  # fmt: skip


def fused(seed: int, *, uniform: bool) -> Function:
    """Patterns, in turn."""
    kind = "fused_scalar" if uniform else "fused"
    w = Writer(random.Random(f"{kind} {seed}"), uniform)
    type_ = ("i32", "i32", "i16", "i64" if uniform else "i32")[seed % 4]
    choices = FUSED if type_ == "i32" else ANY_TYPE
    for number in range(9):
        # The shift of 8 above suits every type; multiples of 17 would visit the same ones again.
        value = choices[(9 * seed + number) % len(choices)](w, type_)
        w.values[type_].append(value)
    return made(kind, seed, w, (type_,))


def long_ones(seed: int) -> Function:
    """Quotients and roots of double, quotients of 64 bits: tens of instructions each."""
    w = Writer(random.Random(f"long {seed}"), uniform=seed % 5 == 4)
    found = []
    type_ = ("double", "float", "i64")[seed % 3] if not w.uniform else "float"
    for _ in range(2):
        x, y = w.some(type_), w.some(type_)
        if type_ == "i64":
            low = w.hidden(f"and i64 {y}, 1152921504606846975")
            by = w.hidden(f"or i64 {low}, 1")
            op = w.rng.choice(("udiv", "sdiv", "urem", "srem"))
            found.append((type_, w.hidden(f"{op} i64 {x}, {by}")))
            continue
        found.append((type_, w.hidden(f"fdiv {type_} {x}, {y}")))
        suffix = {"double": "f64", "float": "f32"}[type_]
        size = w.hidden(f"call {type_} @llvm.fabs.{suffix}({type_} {x})")
        found.append((type_, w.hidden(f"call {type_} @llvm.sqrt.{suffix}({type_} {size})")))
    w.store_outputs(found)
    return Function("long", seed, (w.text(),), tuple(Output(t) for t, _ in found))


def scalar_conversions(seed: int) -> Function:
    w = Writer(random.Random(f"convert_scalar {seed}"), uniform=True)
    w.values["bfloat"] = [constant("bfloat", 1.5)]
    for _ in range(12):
        conversion(w)
    pair_of(w, "<2 x half>")
    return made("convert_scalar", seed, w, ("i32", "i64", "float", "double", "half", "<2 x half>"))


def literal_floats(seed: int) -> Function:
    """float arithmetic with constants that are not inline."""
    w = Writer(random.Random(f"literals {seed}"))
    rng = w.rng
    for _ in range(10):
        number = constant("float", rng.choice((0.1, 3.0, -7.25, 1e-3, 12345.0, 0.333)))
        x, y = w.some("float"), w.some("float")
        kind = rng.randrange(6)
        if kind < 3:
            parts = [(x, number, y), (x, y, number), (number, x, x)][kind]
            w.call("float", "fma_f32", *(("float", part) for part in parts))
        elif kind == 3:
            w.emit("float", f"fsub float {number}, {x}")
        else:
            w.emit("float", f"{rng.choice(('fmul', 'fadd', 'fsub'))} float {x}, {number}")
    return made("literals", seed, w, ("float",))


def columns(seed: int) -> Function:
    """Words of local memory in columns, so that accesses are pairs at a distance."""
    w = Writer(random.Random(f"columns {seed}"))
    rng, found = w.rng, []
    type_, size = rng.choice((("i32", 4), ("i64", 8)))
    place = w.hidden(f"mul i32 %item, {size}")
    for column in range(6):
        at = w.hidden(f"add i32 {place}, {64 * size * column}")
        to = w.hidden(f"getelementptr i8, ptrL %lds, i32 {at}")
        w.line(f"store {type_} {w.some(type_)}, ptrL {to}")
    after = Writer(random.Random(f"columns after {seed}"))
    shift = rng.choice((1, 3, 17, 32))
    other = after.hidden(f"add i32 %item, {shift}")
    lane = after.hidden(f"and i32 {other}, 63")
    place = after.hidden(f"mul i32 {lane}, {size}")
    for column in range(6):
        at = after.hidden(f"add i32 {place}, {64 * size * column}")
        to = after.hidden(f"getelementptr i8, ptrL %lds, i32 {at}")
        found.append((type_, after.hidden(f"load {type_}, ptrL {to}")))
    wide = after.hidden("and i32 %item, 15")
    start = after.hidden(f"mul i32 {wide}, 16")
    to = after.hidden(f"getelementptr i8, ptrL %lds, i32 {start}")
    three = after.hidden(f"load <3 x i32>, ptrL {to}, align 16")
    words = [after.hidden(f"extractelement <3 x i32> {three}, i32 {i}") for i in range(3)]
    found += [("i32", word) for word in words]
    after.store_outputs(found)
    last = Writer(random.Random(f"columns last {seed}"))
    place = last.hidden("mul i32 %item, 16")
    to = last.hidden(f"getelementptr i8, ptrL %lds, i32 {place}")
    value = "poison"
    for i in range(3):
        value = last.hidden(f"insertelement <3 x i32> {value}, i32 {last.some('i32')}, i32 {i}")
    last.line(f"store <3 x i32> {value}, ptrL {to}, align 16")
    own = last.hidden(f"load i32, ptrL {to}")
    last.store_outputs([("i32", own)], len(found))
    outputs = tuple(Output(t) for t, _ in (*found, ("i32", own)))
    return Function("columns", seed, (w.text(), after.text(), last.text()), outputs, uses_lds=True)


def ways(seed: int) -> Function:
    """Branches upon comparisons of every type, of an item's values or of all items' values."""
    w = Writer(random.Random(f"ways {seed}"), uniform=seed % 3 == 2)
    rng, found = w.rng, []
    w.line("br label %start")
    w.lines.append("start:")
    before = "start"
    for number in range(3):
        type_ = COMPARED[(seed + number) % len(COMPARED)]
        word, how = ("icmp", rng.choice(ICMP)) if type_[0] == "i" else ("fcmp", rng.choice(FCMP))
        test = w.hidden(f"{word} {how} {type_} {w.some(type_)}, {w.pick(type_)}")
        x = w.some("i32")
        w.line(f"br i1 {test}, label %yes{number}, label %no{number}")
        w.lines.append(f"yes{number}:")
        y = w.hidden(f"xor i32 {x}, {w.some('i32')}")
        y = w.hidden(f"mul i32 {y}, {w.some('i32')}")
        w.line(f"store i32 {y}, ptrG %out")
        w.line(f"br label %no{number}")
        w.lines.append(f"no{number}:")
        w.line(f"%way{number} = phi i32 [{x}, %{before}], [{y}, %yes{number}]")
        w.values["i32"].append(f"%way{number}")
        found.append(("i32", f"%way{number}"))
        before = f"no{number}"
    w.store_outputs(found, 1)
    w.line("store i32 7, ptrG %out")
    outputs = tuple(Output(t) for t, _ in (("i32", ""), *found))
    return Function("ways", seed, (w.text(),), outputs)


KINDS: dict[str, Callable[[int], Function]] = {
    "compare": lambda seed: comparisons(seed, uniform=False),
    "compare_scalar": lambda seed: comparisons(seed, uniform=True),
    "fused": lambda seed: fused(seed, uniform=False),
    "fused_scalar": lambda seed: fused(seed, uniform=True),
    "long": long_ones,
    "convert_scalar": scalar_conversions,
    "literals": literal_floats,
    "columns": columns,
    "ways": ways,
}
