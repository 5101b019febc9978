"""Generated functions of values: integers, floats, conversions, pairs, comparisons and choices."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.amd.virtual.wave_foreign import (
    BITS,
    FLOATS,
    INTEGERS,
    Function,
    Output,
    Writer,
    constant,
    made,
    suffix,
)

ICMP = ("eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge")
FCMP = (
    "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une",
    "uno",
)  # fmt: skip
UNARY_INTRINSICS = ("ctpop", "bitreverse")
BINARY_INTRINSICS = (
    "smin", "smax", "umin", "umax", "uadd.sat", "usub.sat", "sadd.sat", "ssub.sat",
)  # fmt: skip
ROUNDINGS = ("floor", "ceil", "trunc", "rint", "nearbyint", "roundeven")
INFINITY_CLASSES = (3, 0x204, 0x3C, 0x3C0, 0x264, 0x60, 0x108, 0x90, 0x1F8)
"""Masks of `is.fpclass`, with both NaN or neither."""


def int_vector(type_: str) -> tuple[str, int]:
    """A splat prefix for vector constants, and the bits of an element."""
    element = type_[5:-1] if type_.startswith("<") else type_
    return element, BITS[element]


def splat(type_: str, value: int | str) -> str:
    if not type_.startswith("<"):
        return str(value)
    element = type_[5:-1]
    return "<" + ", ".join([f"{element} {value}"] * int(type_[1])) + ">"


def integer(w: Writer, type_: str) -> None:
    """One operation of an integer type, or of a vector of one."""
    rng, (_, bits) = w.rng, int_vector(type_)
    kind = rng.randrange(10)
    x, y = w.some(type_), w.pick(type_)
    if kind < 4:
        op = rng.choice(("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"))
        if op in ("shl", "lshr", "ashr"):
            y = w.hidden(f"and {type_} {y}, {splat(type_, bits - 1)}")
        w.emit(type_, f"{op} {type_} {x}, {y}")
    elif kind == 4:
        w.intrinsic(type_, rng.choice(BINARY_INTRINSICS), (type_, x), (type_, y))
    elif kind == 5:
        name = rng.choice((*UNARY_INTRINSICS, "abs", "ctlz", "cttz", "bswap"))
        if name in ("abs", "ctlz", "cttz"):
            w.intrinsic(type_, name, (type_, x), ("i1", "false"))
        elif name != "bswap" or bits > 8:
            w.intrinsic(type_, name, (type_, x))
    elif kind == 6:
        z = w.pick(type_)
        name = rng.choice(("fshl", "fshr"))
        shift = w.hidden(f"and {type_} {z}, {splat(type_, bits - 1)}")
        w.intrinsic(type_, name, (type_, x), (type_, y), (type_, shift))
    elif kind == 7 and not type_.startswith("<"):
        division(w, type_)
    elif kind == 8:
        pattern(w, type_, bits)
    else:
        compare_integers(w, type_)


def division(w: Writer, type_: str) -> None:
    rng, bits = w.rng, BITS[type_]
    if bits == 64 and rng.random() < 0.7:
        return
    x, y = w.some(type_), w.some(type_)
    mask = (1 << bits - 1) - 1 if rng.random() < 0.5 else min(255, (1 << bits - 1) - 1)
    low = w.hidden(f"and {type_} {y}, {mask}")
    by = w.hidden(f"or {type_} {low}, 1")
    w.emit(type_, f"{rng.choice(('udiv', 'sdiv', 'urem', 'srem'))} {type_} {x}, {by}")


def pattern(w: Writer, type_: str, bits: int) -> None:
    """What LLVM makes one instruction of."""
    rng = w.rng
    x, y, z = w.some(type_), w.pick(type_), w.pick(type_)
    kind = rng.randrange(14)

    def op(name: str, a: str, b: str | int) -> str:
        return w.hidden(f"{name} {type_} {a}, {splat(type_, b) if isinstance(b, int) else b}")

    shift, width = rng.randrange(1, bits), rng.randrange(1, bits)
    if kind == 0:  # a field, unsigned
        w.emit(type_, f"and {type_} {op('lshr', x, shift)}, {splat(type_, (1 << width) - 1)}")
    elif kind == 1:  # signed
        w.emit(type_, f"ashr {type_} {op('shl', x, shift)}, {splat(type_, width)}")
    elif kind == 2:  # bits of two by a mask
        mask = w.some(type_) if rng.random() < 0.5 else splat(type_, 0x5A & (1 << bits - 1) - 1)
        taken, others = op("and", x, mask), op("and", y, op("xor", mask, -1))
        w.emit(type_, f"or {type_} {taken}, {others}")
    elif kind == 3:
        w.emit(type_, f"add {type_} {op('add', x, y)}, {z}")
    elif kind == 4:
        w.emit(type_, f"{rng.choice(('add', 'or'))} {type_} {op('shl', x, shift)}, {y}")
    elif kind == 5:
        w.emit(type_, f"{rng.choice(('or', 'xor'))} {type_} {op('and', x, y)}, {z}")
    elif kind == 6:
        w.emit(type_, f"add {type_} {op('xor', x, y)}, {z}")
    elif kind == 7:
        w.emit(type_, f"add {type_} {op('mul', x, y)}, {z}")
    elif kind == 8:
        a, b = rng.sample(("smin", "smax", "umin", "umax"), 2)
        first = w.intrinsic(type_, a, (type_, x), (type_, y))
        w.intrinsic(type_, b, (type_, first), (type_, z))
    elif kind == 9:  # 24 bits
        if bits == 32:
            how = rng.choice(("and", "ashr"))
            a, b = (
                op("and", v, 0xFFFFFF) if how == "and" else op("ashr", op("shl", v, 8), 8)
                for v in (x, w.some(type_))
            )
            product = w.emit(type_, f"mul {type_} {a}, {b}")
            if rng.random() < 0.5:
                w.emit(type_, f"add {type_} {product}, {z}")
    elif kind == 10:
        w.emit(type_, f"xor {type_} {op('xor', x, y)}, {splat(type_, -1)}")
    elif kind == 11:
        w.emit(type_, f"add {type_} {w.intrinsic(type_, 'ctpop', (type_, x))}, {y}")
    elif kind == 12:
        inverse = op("xor", y, -1)
        w.emit(type_, f"{rng.choice(('and', 'or'))} {type_} {x}, {inverse}")
    elif not type_.startswith("<"):
        overflow(w, type_, x, y)


def overflow(w: Writer, type_: str, x: str, y: str) -> None:
    name = w.rng.choice(("uadd", "usub", "sadd", "ssub"))
    pair = f"{{ {type_}, i1 }}"
    both = w.hidden(f"call {pair} @llvm.{name}.with.overflow.{type_}({type_} {x}, {type_} {y})")
    w.emit(type_, f"extractvalue {pair} {both}, 0")
    w.emit("i1", f"extractvalue {pair} {both}, 1")


def products(w: Writer) -> None:
    """Wide products: upper halves, and 64-bit sums of them."""
    ext = w.rng.choice(("zext", "sext"))
    x, y = w.some("i32"), w.pick("i32")
    a = w.hidden(f"{ext} i32 {x} to i64")
    b = w.hidden(f"{ext} i32 {y} to i64")
    p = w.hidden(f"mul i64 {a}, {b}")
    if w.rng.random() < 0.5:
        high = w.hidden(f"lshr i64 {p}, 32")
        w.emit("i32", f"trunc i64 {high} to i32")
    else:
        w.emit("i64", f"add i64 {p}, {w.some('i64')}")


def _conditions(type_: str) -> str:
    return f"<{type_[1]} x i1>" if type_.startswith("<") else "i1"


def compare_integers(w: Writer, type_: str) -> None:
    x, y = w.some(type_), w.pick(type_, 0.3)
    test = w.emit(_conditions(type_), f"icmp {w.rng.choice(ICMP)} {type_} {x}, {y}")
    choose(w, test, type_)


def choose(w: Writer, test: str, type_: str) -> None:
    """A value by a condition, or a condition of two."""
    rng = w.rng
    conditions = _conditions(type_)
    if rng.random() < 0.25:
        test = w.emit(
            conditions,
            f"{rng.choice(('and', 'or', 'xor'))} {conditions} {test}, {w.some(conditions)}",
        )
    a, b = w.pick(type_, 0.4), w.pick(type_, 0.3)
    w.emit(type_, f"select {conditions} {test}, {type_} {a}, {type_} {b}")


def floating(w: Writer, type_: str) -> None:
    """One operation of a float type, or of a vector of one."""
    rng = w.rng
    element = type_[5:-1] if type_.startswith("<") else type_
    if element == "bfloat":
        brain(w)
        return
    kind = rng.randrange(12)
    x, y = w.some(type_), w.pick(type_, 0.25)
    if kind < 3:
        w.emit(type_, f"{rng.choice(('fadd', 'fsub', 'fmul'))} {type_} {x}, {y}")
    elif kind < 5:
        fused(w, type_)
    elif kind == 5:
        name = rng.choice(("minimum", "maximum", "minimumnum", "maximumnum", "minnum", "maxnum"))
        first = w.hidden(f"call {type_} @{chooser(name, type_)}({type_} {x}, {type_} {y})")
        if name in ("minnum", "maxnum"):
            w.emit(type_, f"fadd {type_} {first}, {splat(type_, constant(element, 0.0))}")
        else:
            w.values[type_].append(first)
    elif kind == 6:
        if rng.random() < 0.5:
            w.emit(type_, f"fneg {type_} {x}")
        else:
            w.intrinsic(type_, "fabs", (type_, x))
    elif type_.startswith("<"):
        conditions = _conditions(type_)
        test = w.emit(conditions, f"fcmp {rng.choice(FCMP)} {type_} {x}, {y}")
        choose(w, test, type_)
    elif kind == 7:
        w.intrinsic(type_, rng.choice(ROUNDINGS), (type_, x))
    elif kind == 8:
        w.intrinsic(type_, "copysign", (type_, x), (type_, w.clean(type_, y)))
    elif kind == 9:
        rare(w, type_, x, y)
    else:
        test = w.emit("i1", f"fcmp {rng.choice(FCMP)} {type_} {x}, {y}")
        choose(w, test, type_)


def chooser(name: str, type_: str) -> str:
    """The function for a minimum or maximum: of the prelude for halves."""
    return f"{name}_{suffix(type_)}" if "half" in type_ else f"llvm.{name}.{suffix(type_)}"


def fused(w: Writer, type_: str) -> None:
    """Multiply-add, often with a constant or with signs changed."""
    rng = w.rng
    parts = [w.some(type_), w.pick(type_, 0.3), w.pick(type_, 0.3)]
    if rng.random() < 0.4:
        at = rng.randrange(3)
        parts[at] = w.hidden(f"fneg {type_} {w.some(type_)}")
    if rng.random() < 0.2:
        parts[0] = w.intrinsic(type_, "fabs", (type_, parts[0]))
    if type_ == "<2 x float>":
        w.intrinsic(type_, "fma", *((type_, part) for part in parts))
        return
    w.call(type_, f"fma_{suffix(type_)}", *((type_, part) for part in parts))


def rare(w: Writer, type_: str, x: str, y: str) -> None:
    """Longer ones, and what must look at bits."""
    rng = w.rng
    kind = rng.randrange(7)
    if kind == 0 and type_ != "double":
        w.emit(type_, f"fdiv {type_} {x}, {y}")
    elif kind == 1 and type_ != "double":
        w.intrinsic(type_, "sqrt", (type_, w.intrinsic(type_, "fabs", (type_, x))))
    elif kind == 2:
        e = w.hidden(f"ashr i32 {w.some('i32')}, 22")
        w.call(type_, f"ldexp_{suffix(type_)}", (type_, x), ("i32", e))
    elif kind == 3 and type_ != "half":
        w.call(type_, f"mantissa_{suffix(type_)}", (type_, x))
        w.call("i32", f"exponent_{suffix(type_)}", (type_, x))
    elif kind == 4:
        mask = rng.choice(INFINITY_CLASSES)
        w.emit("i1", f"call i1 @llvm.is.fpclass.{suffix(type_)}({type_} {x}, i32 {mask})")
    elif kind == 5:  # into 0…1, which is a modifier
        low = w.hidden(
            f"call {type_} @{chooser('maxnum', type_)}({type_} {x}, {type_} {constant(type_, 0.0)})"
        )
        high = w.hidden(
            f"call {type_} @{chooser('minnum', type_)}({type_} {low}, "
            f"{type_} {constant(type_, 1.0)})"
        )
        w.emit(type_, f"fadd {type_} {high}, {constant(type_, 0.0)}")
    else:
        z = w.pick(type_)
        names = rng.choice((("minimum", "maximum"), ("maximum", "maximum"), ("minimum",) * 2))
        first = w.call(type_, chooser(names[0], type_), (type_, x), (type_, y))
        w.call(type_, chooser(names[1], type_), (type_, first), (type_, z))


def brain(w: Writer) -> None:
    """bfloat: arithmetic by float's, rounded."""
    rng, x, y = w.rng, w.some("bfloat"), w.pick("bfloat")
    kind = rng.randrange(6)
    if kind < 3:
        op = rng.choice(("add", "sub", "mul", "mul", "div"))
        w.call("bfloat", f"f{op}_bf16", ("bfloat", x), ("bfloat", y))
    elif kind == 3:
        w.emit("bfloat", f"fneg bfloat {x}")
    elif kind == 4:
        wide = w.emit("float", f"fpext bfloat {x} to float")
        w.call("bfloat", "fptrunc_float_bfloat", ("float", wide))
    else:
        test = w.emit("i1", f"fcmp {rng.choice(FCMP)} bfloat {x}, {y}")
        choose(w, test, "bfloat")


def conversion(w: Writer) -> None:
    """From any type to any other."""
    rng = w.rng
    types = (*INTEGERS, *FLOATS)
    source, to = rng.sample(types, 2)
    x = w.some(source)
    if source in INTEGERS and to in INTEGERS:
        op = "trunc" if BITS[source] > BITS[to] else rng.choice(("zext", "sext"))
        w.emit(to, f"{op} {source} {x} to {to}")
    elif source in INTEGERS:
        if to == "bfloat" or (BITS[source] > 16 and to == "half"):
            return
        w.emit(to, f"{rng.choice(('sitofp', 'uitofp'))} {source} {x} to {to}")
    elif to in INTEGERS:
        if source == "bfloat":
            source, x = "float", w.hidden(f"fpext bfloat {x} to float")
        name = rng.choice(("fptosi", "fptoui"))
        w.call(to, f"llvm.{name}.sat.{to}.{suffix(source)}", (source, x))
    else:
        between_floats(w, source, to, x)


def between_floats(w: Writer, source: str, to: str, x: str) -> None:
    if {source, to} == {"half", "bfloat"}:
        if source == "half":
            w.call(to, "fptrunc_half_bfloat", (source, x))
        return
    if BITS[to] > BITS[source]:
        w.emit(to, f"fpext {source} {x} to {to}")
    elif (source, to) == ("double", "half"):
        w.call(to, "fptrunc_double_half", (source, x))
    elif to == "bfloat":
        if source == "float":
            w.call(to, "fptrunc_float_bfloat", (source, x))
    else:
        w.emit(to, f"fptrunc {source} {x} to {to}")


def mixed_precision(w: Writer) -> None:
    """float arithmetic of halves, each read from either half of a register, and written to one."""
    rng = w.rng

    def part() -> str:
        if rng.random() < 0.3:
            return w.some("float")
        x = w.some("half")
        if "<2 x half>" in w.values and rng.random() < 0.7:
            x = w.hidden(
                f"extractelement <2 x half> {w.some('<2 x half>')}, i32 {rng.randrange(2)}"
            )
        if rng.random() < 0.3:
            x = w.hidden(f"fneg half {x}")
        return w.hidden(f"fpext half {x} to float")

    result = w.emit(
        "float",
        f"call float @fma_f32(float {part()}, float {part()}, float {part()})",
    )
    if rng.random() < 0.7:
        narrow = w.emit("half", f"fptrunc float {result} to half")
        pair = w.some("<2 x half>") if "<2 x half>" in w.values else "zeroinitializer"
        w.emit("<2 x half>", f"insertelement <2 x half> {pair}, half {narrow}, i32 1")
        if rng.random() < 0.5:
            other = w.hidden(f"fptrunc float {w.some('float')} to half")
            w.emit("<2 x half>", f"insertelement <2 x half> {pair}, half {other}, i32 0")


def pair_of(w: Writer, type_: str) -> None:
    """A vector from elements, or with its elements in another order."""
    element, count = type_[5:-1], int(type_[1])
    if type_ in w.values and w.rng.random() < 0.5:
        order = ", ".join(f"i32 {w.rng.randrange(2 * count)}" for _ in range(count))
        x, y = w.some(type_), w.some(type_)
        w.emit(type_, f"shufflevector {type_} {x}, {type_} {y}, <{count} x i32> <{order}>")
        return
    value = "poison"
    for at in range(count):
        value = w.hidden(f"insertelement {type_} {value}, {element} {w.some(element)}, i32 {at}")
    w.values.setdefault(type_, []).append(value)


def bits(w: Writer) -> None:
    """A float's bits as an integer, and a signed choice of constants."""
    type_, as_int = w.rng.choice((("float", "i32"), ("half", "i16"), ("double", "i64")))
    x = w.clean(type_, w.some(type_))
    w.emit(as_int, f"bitcast {type_} {x} to {as_int}")


def near(w: Writer) -> str:
    """One of the functions that hardware approximates; its name."""
    which, type_ = w.rng.choice(
        (
            ("rcp", "float"), ("rsq", "float"), ("sqrt", "float"), ("exp2", "float"),
            ("log", "float"), ("sin", "float"), ("cos", "float"), ("rcp", "half"),
            ("rsq", "half"), ("rcp", "double"), ("rsq", "double"), ("fract", "float"),
        )
    )  # fmt: skip
    x = w.some(type_)
    if which in ("rsq", "sqrt", "log"):
        x = w.hidden(f"call {type_} @llvm.fabs.{suffix(type_)}({type_} {x})")
    w.values.pop("near", None)
    w.values["near"] = [w.hidden(f"call {type_} @near_{which}_{suffix(type_)}({type_} {x})")]
    w.values["type"] = [type_]
    return which


# The kinds.


def _of(
    kind: str,
    steps: int,
    step: Callable[[Writer], None],
    types: tuple[str, ...],
    *,
    uniform: bool = False,
    pairs: tuple[str, ...] = (),
) -> Callable[[int], Function]:
    def make(seed: int) -> Function:
        w = Writer(random.Random(f"{kind} {seed}"), uniform)
        for type_ in pairs:
            for _ in range(3):
                pair_of(w, type_)
        for _ in range(steps):
            step(w)
        return made(kind, seed, w, types)

    return make


def _step(*choices: Callable[[Writer], None]) -> Callable[[Writer], None]:
    return lambda w: w.rng.choice(choices)(w)


def _int(type_: str) -> Callable[[Writer], None]:
    return lambda w: integer(w, type_)


def _float(type_: str) -> Callable[[Writer], None]:
    return lambda w: floating(w, type_)


def _pairs(type_: str) -> Callable[[Writer], None]:
    return lambda w: pair_of(w, type_)


def near_function(seed: int) -> Function:
    rng = random.Random(f"near {seed}")
    w = Writer(rng)
    outputs: list[Output] = []
    for _ in range(4):
        which = near(w)
        value, type_ = w.values.pop("near")[0], w.values.pop("type")[0]
        w.store_outputs([(type_, value)], len(outputs))
        outputs.append(Output(type_, which))
    return Function("near", seed, (w.text(),), tuple(outputs))


KINDS: dict[str, Callable[[int], Function]] = {
    "int32": _of("int32", 16, _step(_int("i32"), _int("i32"), products), ("i32", "i64", "i1")),
    "int64": _of("int64", 9, _step(_int("i64"), _int("i64"), products), ("i64", "i32", "i1")),
    "int16": _of("int16", 14, _int("i16"), ("i16", "i1")),
    "int8": _of("int8", 14, _int("i8"), ("i8", "i1")),
    "scalar": _of(
        "scalar", 16, _step(_int("i32"), _int("i64"), products), ("i32", "i64", "i1"),
        uniform=True,
    ),
    "scalar_float": _of(
        "scalar_float", 12, _step(_float("float"), _float("half"), bits, conversion),
        ("float", "half", "i32", "i1"), uniform=True,
    ),
    "float": _of("float", 12, _float("float"), ("float", "i1", "i32")),
    "double": _of("double", 9, _float("double"), ("double", "i1", "i32")),
    "half": _of("half", 12, _float("half"), ("half", "i1")),
    "bfloat": _of("bfloat", 8, _float("bfloat"), ("bfloat", "float", "i1")),
    "convert": _of("convert", 14, conversion, (*INTEGERS, *FLOATS)),
    "pairs16": _of(
        "pairs16", 12, _step(_int("<2 x i16>"), _int("<2 x i16>"), _pairs("<2 x i16>")),
        ("<2 x i16>",), pairs=("<2 x i16>",),
    ),
    "pairs_half": _of(
        "pairs_half", 12, _step(_float("<2 x half>"), _float("<2 x half>"), _pairs("<2 x half>")),
        ("<2 x half>",), pairs=("<2 x half>",),
    ),
    "pairs_float": _of(
        "pairs_float", 10, _step(_float("<2 x float>"), _float("<2 x float>"),
        _pairs("<2 x float>")), ("<2 x float>",), pairs=("<2 x float>",),
    ),
    "mix": _of("mix", 7, mixed_precision, ("<2 x half>", "float", "half"), pairs=("<2 x half>",)),
    "choose": _of(
        "choose", 12, _step(
            lambda w: compare_integers(w, w.rng.choice(INTEGERS)),
            lambda w: choose(
                w, w.hidden(f"fcmp {w.rng.choice(FCMP)} float {w.some('float')}, "
                            f"{w.pick('float')}"), w.rng.choice(("i32", "float", "half", "i64")),
            ), bits,
        ), (*INTEGERS, "float", "half", "i1"),
    ),
    "near": near_function,
}  # fmt: skip
