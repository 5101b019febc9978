"""Functions that generated texts call: an intrinsic on a GPU, written out in arithmetic for x86.

x86 code may call no library, and for some of these LLVM would. The ones written out here are short
and exact: they round once, in a wider type.
"""

from __future__ import annotations

import re

FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
ROUND_TO_BF16 = """define internal bfloat @round_bf16(float %x) alwaysinline {
  %i = bitcast float %x to i32
  %odd = lshr i32 %i, 16
  %one = and i32 %odd, 1
  %bias = add i32 %one, 32767
  %sum = add i32 %i, %bias
  %nan = fcmp uno float %x, 0.0
  %kept = select i1 %nan, i32 2143289344, i32 %sum
  %high = lshr i32 %kept, 16
  %short = trunc i32 %high to i16
  %r = bitcast i16 %short to bfloat
  ret bfloat %r
}"""
TO_ODD = """define internal float @to_odd(double %x) alwaysinline {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %same = fcmp ueq double %back, %x
  %a = call double @llvm.fabs.f64(double %back)
  %b = call double @llvm.fabs.f64(double %x)
  %far = fcmp ogt double %a, %b
  %bits = bitcast float %near to i32
  %less = sub i32 %bits, 1
  %cut = select i1 %far, i32 %less, i32 %bits
  %odd = or i32 %cut, 1
  %kept = select i1 %same, i32 %bits, i32 %odd
  %r = bitcast i32 %kept to float
  ret float %r
}"""
POWER = """define internal double @power(i32 %e) alwaysinline {
  %low = call i32 @llvm.smax.i32(i32 %e, i32 -1000)
  %kept = call i32 @llvm.smin.i32(i32 %low, i32 1000)
  %biased = add i32 %kept, 1023
  %wide = zext i32 %biased to i64
  %bits = shl i64 %wide, 52
  %r = bitcast i64 %bits to double
  ret double %r
}"""
"""2 to the e, for ldexp of numbers whose exponent is below 1000."""


def _define(result: str, name: str, types: list[str], lines: list[str]) -> str:
    inside = ", ".join(f"{t} %a{i}" for i, t in enumerate(types))
    body = "\n".join(f"  {line}" for line in lines)
    return f"define internal {result} @{name}({inside}) alwaysinline {{\n{body}\n}}"


def _narrowed(wide: str, result: str, type_: str) -> list[str]:
    """Lines that round %w of a wider type once and return it."""
    if type_ == "bfloat":
        return [f"%r = call bfloat @round_bf16(float {result})", "ret bfloat %r"]
    if (wide, type_) == ("double", "half"):
        return [
            f"%odd = call float @to_odd(double {result})",
            "%r = fptrunc float %odd to half",
            "ret half %r",
        ]
    if wide == type_:
        return [f"ret {type_} {result}"]
    return [f"%r = fptrunc {wide} {result} to {type_}", f"ret {type_} %r"]


def _widened(type_: str, wide: str, count: int) -> list[str]:
    if type_ == wide:
        return []
    return [f"%w{i} = fpext {type_} %a{i} to {wide}" for i in range(count)]


def _table() -> dict[str, tuple[str, str]]:
    """By name: the text for x86 and for a GPU."""
    table: dict[str, tuple[str, str]] = {
        "round_bf16": (ROUND_TO_BF16, ""), "to_odd": (TO_ODD, ""), "power": (POWER, POWER),
    }  # fmt: skip
    for op in ("add", "sub", "mul", "div"):  # bfloat: float's operation, rounded
        host = [*_widened("bfloat", "float", 2), f"%w = f{op} float %w0, %w1"]
        name, types = f"f{op}_bf16", ["bfloat"] * 2
        table[name] = (
            _define("bfloat", name, types, [*host, *_narrowed("float", "%w", "bfloat")]),
            _define("bfloat", name, types, [f"%r = f{op} bfloat %a0, %a1", "ret bfloat %r"]),
        )
    for suffix, wide in (("f16", "double"), ("f32", "float"), ("f64", "double")):
        _fma(table, suffix, wide)
    for suffix, wide in (("f16", "float"), ("f32", "double"), ("f64", "double")):
        _ldexp(table, suffix, wide)
    for suffix in ("f32", "f64"):
        _frexp(table, suffix)
    for name in ("minimum", "maximum", "minimumnum", "maximumnum", "minnum", "maxnum"):
        _choice_of_halves(table, name)
    for name in ("minimum", "maximum", "minimumnum", "maximumnum", "minnum", "maxnum", "fma"):
        _of_pairs(table, name, 3 if name == "fma" else 2)
    for source, to, through in (
        ("double", "half", "double"), ("float", "bfloat", "float"), ("half", "bfloat", "float"),
    ):  # fmt: skip
        name, wide = f"fptrunc_{source}_{to}", "float" if source == "half" else source
        value = "%w0" if source == "half" else "%a0"
        host = _widened(source, wide, 1) if source == "half" else []
        gpu = [f"%r = fptrunc {source} %a0 to {to}", f"ret {to} %r"]
        if source == "half":  # neither holds the other
            gpu = ["%w = fpext half %a0 to float", f"%r = fptrunc float %w to {to}", f"ret {to} %r"]
        table[name] = (
            _define(to, name, [source], [*host, *_narrowed(through, value, to)]),
            _define(to, name, [source], gpu),
        )
    _hardware(table)
    return table


def _fma(table: dict[str, tuple[str, str]], suffix: str, wide: str) -> None:
    type_, name = FLOATS[suffix], f"fma_{suffix}"
    own = {"float": "f32", "double": "f64"}[wide]
    values = [f"{wide} %{'a' if type_ == wide else 'w'}{i}" for i in range(3)]
    host = [
        *_widened(type_, wide, 3),
        f"%w = call {wide} @llvm.fma.{own}({', '.join(values)})",
        *_narrowed(wide, "%w", type_),
    ]
    inside = ", ".join(f"{type_} %a{i}" for i in range(3))
    gpu = [f"%r = call {type_} @llvm.fma.{suffix}({inside})", f"ret {type_} %r"]
    table[name] = (
        _define(type_, name, [type_] * 3, host),
        _define(type_, name, [type_] * 3, gpu),
    )


def _choice_of_halves(table: dict[str, tuple[str, str]], op: str) -> None:
    """The smaller or larger of two halves; x86 has it for float only."""
    name, types = f"{op}_f16", ["half"] * 2
    host = [
        *_widened("half", "float", 2),
        f"%w = call float @llvm.{op}.f32(float %w0, float %w1)",
        *_narrowed("float", "%w", "half"),
    ]
    gpu = [f"%r = call half @llvm.{op}.f16(half %a0, half %a1)", "ret half %r"]
    table[name] = _define("half", name, types, host), _define("half", name, types, gpu)


def _of_pairs(table: dict[str, tuple[str, str]], op: str, count: int) -> None:
    """Of <2 x half>, one after the other on x86."""
    pair, name = "<2 x half>", f"{op}_v2f16"
    lines = []
    for half in (0, 1):
        lines += [f"%e{half}{i} = extractelement {pair} %a{i}, i32 {half}" for i in range(count)]
        inside = ", ".join(f"half %e{half}{i}" for i in range(count))
        lines.append(f"%f{half} = call half @{op}_f16({inside})")
    lines.append(f"%low = insertelement {pair} poison, half %f0, i32 0")
    lines.append(f"%both = insertelement {pair} %low, half %f1, i32 1")
    inside = ", ".join(f"{pair} %a{i}" for i in range(count))
    gpu = [f"%r = call {pair} @llvm.{op}.v2f16({inside})", f"ret {pair} %r"]
    table[name] = (
        _define(pair, name, [pair] * count, [*lines, f"ret {pair} %both"]),
        _define(pair, name, [pair] * count, gpu),
    )


def _ldexp(table: dict[str, tuple[str, str]], suffix: str, wide: str) -> None:
    """Exponents are kept to a range in which 2 to the e is a double."""
    type_, name = FLOATS[suffix], f"ldexp_{suffix}"
    keep = [
        "%low = call i32 @llvm.smax.i32(i32 %a1, i32 -400)",
        "%e = call i32 @llvm.smin.i32(i32 %low, i32 400)",
    ]
    value = "%a0" if type_ == "double" else "%w0"
    host = [
        *keep,
        *([] if type_ == "double" else [f"%w0 = fpext {type_} %a0 to double"]),
        "%p = call double @power(i32 %e)",
        f"%w = fmul double {value}, %p",
        *_narrowed("double", "%w", type_),
    ]
    exponent, more = ("i32", []) if type_ != "half" else ("i16", ["%s = trunc i32 %e to i16"])
    name_of_e = "%e" if type_ != "half" else "%s"
    gpu = [
        *keep,
        *more,
        f"%r = call {type_} @llvm.ldexp.{suffix}.{exponent}({type_} %a0, {exponent} {name_of_e})",
        f"ret {type_} %r",
    ]
    types = [type_, "i32"]
    table[name] = (_define(type_, name, types, host), _define(type_, name, types, gpu))


def _frexp(table: dict[str, tuple[str, str]], suffix: str) -> None:
    """Mantissa and exponent as two functions; infinities and NaN are taken for 1."""
    type_ = FLOATS[suffix]
    bits, low, bias = (32, 23, 126) if suffix == "f32" else (64, 52, 1022)
    finite = [
        f"%m = call {type_} @llvm.fabs.{suffix}({type_} %a0)",
        f"%ok = fcmp olt {type_} %m, 0x7FF0000000000000",
        f"%x = select i1 %ok, {type_} %a0, {type_} 1.0",
    ]
    scale = "0x4470000000000000"  # 2 to the 72
    parts = [
        *finite,
        f"%y = fmul {type_} %x, {scale}",
        f"%small = fcmp olt {type_} %m, {'0x3810000000000000' if suffix == 'f32' else '0x0010000000000000'}",  # noqa: E501
        f"%n = select i1 %small, {type_} %y, {type_} %x",
        "%less = select i1 %small, i32 72, i32 0",
        f"%i = bitcast {type_} %n to i{bits}",
        f"%zero = fcmp oeq {type_} %x, 0.0",
    ]
    ones = (1 << bits - 1 - low) - 1
    mantissa = [
        *parts,
        f"%kept = and i{bits} %i, {~(ones << low)}",
        f"%new = or i{bits} %kept, {bias << low}",
        f"%f = bitcast i{bits} %new to {type_}",
        f"%r = select i1 %zero, {type_} %x, {type_} %f",
        f"ret {type_} %r",
    ]
    exponent = [
        *parts,
        f"%s = lshr i{bits} %i, {low}",
        f"%e = and i{bits} %s, {ones}",
        f"%t = {'add i32 %e, 0' if bits == 32 else 'trunc i64 %e to i32'}",
        f"%u = sub i32 %t, {bias}",
        "%v = sub i32 %u, %less",
        "%r = select i1 %zero, i32 0, i32 %v",
        "ret i32 %r",
    ]
    pair = f"{{ {type_}, i32 }}"
    call = f"%p = call {pair} @llvm.frexp.{suffix}.i32({type_} %x)"
    for part, index, lines in (("mantissa", 0, mantissa), ("exponent", 1, exponent)):
        name, result = f"{part}_{suffix}", type_ if index == 0 else "i32"
        gpu = [*finite, call, f"%r = extractvalue {pair} %p, {index}", f"ret {result} %r"]
        table[name] = (
            _define(result, name, [type_], lines),
            _define(result, name, [type_], gpu),
        )


def _hardware(table: dict[str, tuple[str, str]]) -> None:
    """Instructions that LLVM offers as intrinsics of AMD GPUs."""
    for name in ("rcp", "rsq", "sqrt", "exp2", "log", "sin", "cos", "fract"):
        for type_, suffix in (("float", "f32"), ("half", "f16"), ("double", "f64")):
            if suffix != "f32" and name not in ("rcp", "rsq", "fract"):
                continue
            if (name, suffix) == ("fract", "f16"):
                continue
            full = f"llvm.amdgcn.{name}.{suffix}"
            own = f"near_{name}_{suffix}"
            table[own] = (
                _define(type_, own, [type_], [f"ret {type_} %a0"]),
                _define(
                    type_,
                    own,
                    [type_],
                    [f"%r = call {type_} @{full}({type_} %a0)", f"ret {type_} %r"],
                ),
            )


TABLE = _table()


def lanes_text(gpu: bool, lanes: int) -> dict[str, str]:
    """Exchange between the lanes of a wave. Each item has stored its value in `shared` before."""
    if gpu:
        return {
            "pull": """define internal i32 @pull(i32 %own, i32 %from, i32 %item, ptrG %all) alwaysinline {
  %at = shl i32 %from, 2
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %at, i32 %own)
  ret i32 %r
}""",  # noqa: E501
            "first": """define internal i32 @first(i32 %own, i32 %from, i32 %item, ptrG %all) alwaysinline {
  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %own, i32 %from)
  ret i32 %r
}""",  # noqa: E501
            "below": f"""define internal i32 @below(i32 %item) alwaysinline {{
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  {"%r = add i32 %low, 0" if lanes == 32 else "%r = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)"}
  ret i32 %r
}}""",  # noqa: E501
        }
    text = f"""(i32 %own, i32 %from, i32 %item, ptrG %all) alwaysinline {{
  %wave = and i32 %item, {-lanes}
  %lane = and i32 %from, {lanes - 1}
  %which = or i32 %wave, %lane
  %wide = zext i32 %which to i64
  %at = getelementptr i32, ptrG %all, i64 %wide
  %r = load i32, ptrG %at
  ret i32 %r
}}"""
    return {
        "pull": "define internal i32 @pull" + text,
        "first": "define internal i32 @first" + text,
        "below": f"""define internal i32 @below(i32 %item) alwaysinline {{
  %r = and i32 %item, {lanes - 1}
  ret i32 %r
}}""",
    }


def prelude(*, gpu: bool, lanes: int, used: str = "") -> str:
    """The text of the functions that `used` calls, and of those that these call."""
    texts = {name: pair[gpu] for name, pair in TABLE.items()} | lanes_text(gpu, lanes)
    found: dict[str, str] = {}
    todo = [used]
    while todo:
        for name in re.findall(r"@(\w+)\(", todo.pop()):
            if name in texts and name not in found:
                found[name] = texts[name]
                todo.append(texts[name])
    return "\n".join(found.values())
