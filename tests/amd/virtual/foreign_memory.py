"""Generated functions of memory and of control flow, and of values that lanes exchange."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.amd.virtual.foreign_values import FCMP, ICMP, floating, integer
from tests.amd.virtual.wave_foreign import (
    BITS,
    LDS_OWN_BYTES,
    OWN_BYTES,
    Function,
    Output,
    Writer,
    made,
)

WIDTHS = {
    "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "<2 x i32>": 8, "<3 x i32>": 12,
    "<4 x i32>": 16, "<2 x half>": 4, "<2 x i16>": 4, "<2 x i64>": 16, "<4 x float>": 16,
}  # fmt: skip
"""Bytes of what is loaded and stored."""


def _value(w: Writer, type_: str) -> str:
    """A value of any type of `WIDTHS`."""
    if not type_.startswith("<"):
        return w.some(type_)
    if type_ in w.values and w.rng.random() < 0.6:
        return w.some(type_)
    element, value = type_[5:-1], "poison"
    for at in range(int(type_[1])):
        value = w.hidden(f"insertelement {type_} {value}, {element} {w.some(element)}, i32 {at}")
    return value


def _place(
    w: Writer, pointer: str, base: str, size: int, room: int, loose: bool
) -> tuple[str, int]:
    """An address within `room` bytes from `base`, sometimes by a variable; and its alignment."""
    rng = w.rng
    align = min(size & -size, 4) if loose else min(16, 1 << (size - 1).bit_length())
    span = 1 << (room - size).bit_length() - 1
    if rng.random() < 0.5:
        at: str = str(rng.randrange(0, room - size + 1, align))
    else:
        some = w.some("i32")
        masked = w.hidden(f"and i32 {some}, {(span - 1) & -align}")
        at = w.hidden(f"zext i32 {masked} to i64")
    return w.hidden(f"getelementptr i8, {pointer} {base}, i64 {at}"), align


def accesses(
    w: Writer, pointer: str, base: str, room: int, count: int, *, loose: bool, volatile: str = ""
) -> None:
    """Stores and loads in turn, all in the item's own room."""
    rng = w.rng
    for _ in range(count):
        type_ = rng.choice(list(WIDTHS))
        size = WIDTHS[type_]
        if size > room:
            continue
        value = _value(w, type_)
        at, align = _place(w, pointer, base, size, room, loose)
        w.line(f"store {volatile}{type_} {value}, {pointer} {at}, align {align}")
        type_ = rng.choice(list(WIDTHS))
        at, align = _place(w, pointer, base, WIDTHS[type_], room, loose)
        loaded = w.emit(type_, f"load {volatile}{type_}, {pointer} {at}, align {align}")
        after_load(w, type_, loaded)


def after_load(w: Writer, type_: str, loaded: str) -> None:
    """Widened, put into a half of a pair, or taken apart."""
    rng = w.rng
    if type_ in ("half", "float"):
        w.values[type_].remove(loaded)
        w.values[type_].append(w.clean(type_, loaded))
    elif type_ == "<2 x half>" or type_ == "<4 x float>":
        w.values[type_].remove(loaded)
        element = type_[5:-1]
        part = w.hidden(f"extractelement {type_} {loaded}, i32 {rng.randrange(int(type_[1]))}")
        w.values[element].append(w.clean(element, part))
    if type_ in ("i8", "i16"):
        ext = rng.choice(("zext", "sext"))
        if type_ == "i8" and rng.random() < 0.5:
            wide = w.hidden(f"{ext} i8 {loaded} to i16")
        else:
            wide = loaded if type_ == "i16" else w.hidden(f"{ext} i8 {loaded} to i16")
        if rng.random() < 0.6:
            pair = _value(w, "<2 x i16>")
            w.emit(
                "<2 x i16>", f"insertelement <2 x i16> {pair}, i16 {wide}, i32 {rng.randrange(2)}"
            )
        else:
            w.emit("i32", f"{ext} {type_} {loaded} to i32")
    elif type_.startswith("<") and "i" in type_[5:]:
        element = type_[5:-1]
        w.emit(element, f"extractelement {type_} {loaded}, i32 {rng.randrange(int(type_[1]))}")


OUT = ("i8", "i16", "i32", "i64", "<2 x i16>", "half", "float")


def _own(w: Writer, pointer: str, base: str, size: int) -> str:
    wide = w.hidden("zext i32 %item to i64")
    at = w.hidden(f"mul i64 {wide}, {size}")
    return w.hidden(f"getelementptr i8, {pointer} {base}, i64 {at}")


def global_memory(seed: int) -> Function:
    w = Writer(random.Random(f"global {seed}"))
    accesses(w, "ptrG", _own(w, "ptrG", "%shared", OWN_BYTES), OWN_BYTES, 7, loose=seed % 3 == 0)
    return made("global", seed, w, OUT)


def flat_memory(seed: int) -> Function:
    """Through generic pointers: into global, and into local memory."""
    w = Writer(random.Random(f"flat {seed}"))
    local = seed % 2
    own = _own(w, "ptrL", "%lds", LDS_OWN_BYTES) if local else _own(w, "ptrG", "%shared", OWN_BYTES)
    if local:
        _fill(w, own)
    generic = w.hidden(f"castF {'ptrL' if local else 'ptrG'} {own} to ptr")
    # Which kind it is must not be seen by the compiler.
    other = w.hidden(f"castF ptrG {_own(w, 'ptrG', '%shared', OWN_BYTES)} to ptr")
    test = w.hidden(f"icmp slt i32 {w.some('i32')}, {w.some('i32')}")
    chosen = w.hidden(f"select i1 {test}, ptrF {generic}, ptrF {other}")
    room = LDS_OWN_BYTES if local else OWN_BYTES
    accesses(w, "ptrF", chosen, room, 6, loose=False)
    function = made("flat", seed, w, OUT)
    return Function("flat", seed, function.phases, function.outputs, uses_lds=bool(local))


def _fill(w: Writer, own: str) -> None:
    for at in range(0, LDS_OWN_BYTES, 16):
        to = w.hidden(f"getelementptr i8, ptrL {own}, i64 {at}")
        w.line(f"store <4 x i32> {_value(w, '<4 x i32>')}, ptrL {to}, align 16")


def local_memory(seed: int) -> Function:
    """Own words, then words of others."""
    w = Writer(random.Random(f"local {seed}"))
    own = _own(w, "ptrL", "%lds", LDS_OWN_BYTES)
    _fill(w, own)
    accesses(w, "ptrL", own, LDS_OWN_BYTES, 5, loose=seed % 3 == 0)
    found = w.outputs(OUT, 10)
    w.store_outputs(found)
    after = Writer(random.Random(f"local after {seed}"))
    more = []
    for _ in range(4):
        type_ = after.rng.choice(("i8", "i16", "i32", "i64"))
        mask = (1 << 12) - BITS[type_] // 8
        at = after.hidden(f"and i32 {after.some('i32')}, {mask}")
        wide = after.hidden(f"zext i32 {at} to i64")
        where = after.hidden(f"getelementptr i8, ptrL %lds, i64 {wide}")
        more.append((type_, after.hidden(f"load {type_}, ptrL {where}")))
    after.store_outputs(more, len(found))
    outputs = tuple(Output(t) for t, _ in (*found, *more))
    return Function("local", seed, (w.text(), after.text()), outputs, uses_lds=True)


def private_memory(seed: int) -> Function:
    """Arrays of an item's own, indexed by what is not known before."""
    w = Writer(random.Random(f"private {seed}"))
    room = w.rng.choice((64, 128, 256))
    array = w.hidden(f"alloca [{room} x i8], align 16, addrspace(5)")
    for at in range(0, room, 16):
        to = w.hidden(f"getelementptr i8, ptrP {array}, i32 {at}")
        w.line(f"store <4 x i32> {_value(w, '<4 x i32>')}, ptrP {to}, align 16")
    base, pointer = array, "ptrP"
    accesses(w, pointer, base, room, 6, loose=False, volatile="volatile ")
    return made("private", seed, w, OUT)


def table_loads(seed: int) -> Function:
    """Loads of what is the same for all items, at places that are too."""
    w = Writer(random.Random(f"table {seed}"), uniform=True)
    for _ in range(7):
        type_ = w.rng.choice(
            (
                "i8",
                "i16",
                "i32",
                "i64",
                "<2 x i32>",
                "<3 x i32>",
                "<4 x i32>",
                "<8 x i32>",
                "<16 x i32>",
            )
        )
        size = WIDTHS.get(type_, 64 if "16" in type_ and type_[0] == "<" else 32)
        at, align = _place(w, "ptrK", "%table", size, 512, False)
        loaded = w.emit(type_, f"load {type_}, ptrK {at}, align {align}, !invariant.load !{{}}")
        if type_.startswith("<"):
            number = w.rng.randrange(size // 4)
            w.emit("i32", f"extractelement {type_} {loaded}, i32 {number}")
        elif type_ in ("i8", "i16"):
            w.emit("i32", f"{w.rng.choice(('zext', 'sext'))} {type_} {loaded} to i32")
        integer(w, "i32")
    return made("table", seed, w, ("i32", "i64"))


RMW = ("add", "sub", "and", "or", "xor", "max", "min", "umax", "umin")
OWN_RMW = (*RMW, "xchg", "nand", "uinc_wrap", "udec_wrap")


def _no_zero(w: Writer, type_: str, value: str) -> str:
    """A float that is no NaN and no zero, whose sign a minimum may choose."""
    kept = w.clean(type_, value)
    test = w.hidden(f"fcmp oeq {type_} {kept}, 0.0")
    return w.hidden(f"select i1 {test}, {type_} 1.0, {type_} {kept}")


def atomics(seed: int, space: str) -> Function:
    """On an item's own word, with the old value; then on common words, in any order."""
    kind = "atomics_" + space
    w = Writer(random.Random(f"{kind} {seed}"))
    rng, (pointer, base) = w.rng, {"global": ("ptrG", "%shared"), "lds": ("ptrL", "%lds")}[space]
    size = OWN_BYTES if space == "global" else LDS_OWN_BYTES
    own = _own(w, pointer, base, size)
    scope = 'syncscope("agent")' if space == "global" else 'syncscope("workgroup")'
    if space == "lds":
        _fill(w, own)
    note = ", !amdgpu.no.fine.grained.memory !{}, !amdgpu.no.remote.memory !{}"
    for _ in range(5):
        type_ = rng.choice(("i32", "i64", "float") if rng.random() < 0.8 else ("double",))
        at = w.hidden(f"getelementptr i8, {pointer} {own}, i64 {8 * rng.randrange(size // 8)}")
        if type_ in ("float", "double"):  # no NaN may be where it adds
            x, y = (_no_zero(w, type_, w.some(type_)) for _ in range(2))
            w.line(f"store {type_} {x}, {pointer} {at}, align 8")
            op = rng.choice(("fadd", "fadd", "fmin", "fmax"))
            old = w.emit(
                type_, f"atomicrmw {op} {pointer} {at}, {type_} {y} {scope} monotonic{note}"
            )
            w.values[type_][-1] = w.clean(type_, old)
            w.emit(type_, f"load {type_}, {pointer} {at}, align 8")
            w.values[type_][-1] = w.clean(type_, w.values[type_][-1])
        elif rng.random() < 0.3:
            pair = f"{{ {type_}, i1 }}"
            now = w.hidden(f"load {type_}, {pointer} {at}, align 8")
            expected = now if rng.random() < 0.6 else w.some(type_)
            both = w.hidden(
                f"cmpxchg {pointer} {at}, {type_} {expected}, {type_} {w.some(type_)} "
                f"{scope} monotonic monotonic"
            )
            w.emit(type_, f"extractvalue {pair} {both}, 0")
        else:
            old = w.hidden(
                f"atomicrmw {rng.choice(OWN_RMW)} {pointer} {at}, {type_} {w.some(type_)} "
                f"{scope} monotonic{note}"
            )
            if rng.random() < 0.6:
                w.values[type_].append(old)
    found = w.outputs(("i32", "i64", "float", "double"), 10)
    w.store_outputs(found)
    common = Writer(random.Random(f"{kind} common {seed}"))
    where = common.hidden(f"and i32 {common.some('i32')}, 12")
    for number in range(3):
        op = common.rng.choice(RMW)
        type_ = common.rng.choice(("i32", "i64"))
        # A row of words for each instruction, so that each is in one order's hands alone.
        start = (4096 if space == "lds" else 64 * OWN_BYTES) + 256 * number
        if type_ == "i64":
            wide = common.hidden(f"zext i32 {where} to i64")
            place = common.hidden(f"shl i64 {wide}, 1")
        else:
            place = common.hidden(f"zext i32 {where} to i64")
        offset = common.hidden(f"add i64 {place}, {start}")
        at = common.hidden(f"getelementptr i8, {pointer} {base}, i64 {offset}")
        common.line(
            f"atomicrmw {op} {pointer} {at}, {type_} {common.some(type_)} {scope} monotonic{note}"
        )
    last = Writer(random.Random(f"{kind} last {seed}"))
    more: list[tuple[str, str]] = []
    phases: tuple[str, ...] = (w.text(), common.text())
    if space == "lds":
        begin = _begin_common()
        for number in range(3):
            at = last.hidden(f"getelementptr i8, ptrL %lds, i64 {4096 + 256 * number}")
            more.append(("i64", last.hidden(f"load i64, ptrL {at}")))
        last.store_outputs(more, len(found))
        phases = (begin, *phases, last.text())
    outputs = tuple(Output(t) for t, _ in (*found, *more))
    return Function(kind, seed, phases, outputs, uses_lds=space == "lds")


def _begin_common() -> str:
    """Each item clears its part of the upper half of local memory."""
    w = Writer(random.Random(0))
    high = w.hidden("getelementptr i8, ptrL %lds, i64 4096")
    own = _own(w, "ptrL", high, 64)
    for at in range(0, 64, 16):
        to = w.hidden(f"getelementptr i8, ptrL {own}, i64 {at}")
        w.line(f"store <4 x i32> zeroinitializer, ptrL {to}, align 16")
    return w.text()


# Flow.


def loops(seed: int) -> Function:
    """A loop with a count of the item's own, a way out in the middle and a branch inside."""
    w = Writer(random.Random(f"loops {seed}"), uniform=False)
    rng = w.rng
    uniform = seed % 4 == 3
    source = "%sa" if uniform else w.some("i32")
    count = w.hidden(f"and i32 {source}, 15")
    start, first = w.some("i32"), w.some("float")
    w.line("br label %head")
    w.lines.append("head:")
    w.line("%n = phi i32 [0, %start], [%next, %latch]")
    w.line(f"%acc = phi i32 [{start}, %start], [%acc2, %latch]")
    w.line(f"%fac = phi float [{first}, %start], [%fac2, %latch]")
    w.line(f"%go = icmp ult i32 %n, {count}")
    w.line("br i1 %go, label %body, label %done")
    w.lines.append("body:")
    inside = Writer(rng)
    inside.count, inside.lines = 100, []
    inside.values = {k: list(v) for k, v in w.values.items()}
    inside.values["i32"] += ["%acc", "%n"]
    inside.values["float"] += ["%fac"]
    for _ in range(3):
        rng.choice((lambda: integer(inside, "i32"), lambda: floating(inside, "float")))()
    test = inside.hidden(
        f"icmp {rng.choice(ICMP)} i32 {inside.values['i32'][-1]}, {inside.some('i32')}"
    )
    w.lines += inside.lines
    w.line(f"br i1 {test}, label %then, label %latch")
    w.lines.append("then:")
    before = len(inside.lines)
    kept = {k: list(v) for k, v in inside.values.items()}
    for _ in range(2):
        integer(inside, "i32")
    floating(inside, "float")
    w.lines += inside.lines[before:]
    leave = inside.values["i32"][-1]
    fleave = inside.values["float"][-1]
    w.line(f"%out_now = icmp eq i32 {leave}, {rng.choice((0, 1, -1, 5))}")
    w.line("br i1 %out_now, label %done, label %latch")
    w.lines.append("latch:")
    w.line(f"%acc2 = phi i32 [{kept['i32'][-1]}, %body], [{leave}, %then]")
    w.line(f"%fac2 = phi float [{kept['float'][-1]}, %body], [{fleave}, %then]")
    w.line("%next = add i32 %n, 1")
    w.line("br label %head")
    w.lines.append("done:")
    w.line(f"%last = phi i32 [%acc, %head], [{leave}, %then]")
    w.line(f"%flast = phi float [%fac, %head], [{fleave}, %then]")
    w.line("%steps = phi i32 [%n, %head], [%n, %then]")
    found = [("i32", "%last"), ("float", "%flast"), ("i32", "%steps")]
    w.store_outputs(found)
    return Function(
        "loops",
        seed,
        ("  br label %start\nstart:\n" + w.text(),),
        tuple(Output(t) for t, _ in found),
    )


def branches(seed: int) -> Function:
    """A switch, conditions within conditions, stores under some, a way out for some items."""
    w = Writer(random.Random(f"branches {seed}"))
    rng = w.rng
    ways = rng.randrange(3, 7)
    source = "%sk" if seed % 4 == 3 else w.some("i32")
    key = w.hidden(f"and i32 {source}, 7")
    cases = " ".join(f"i32 {i}, label %case{i}" for i in range(ways))
    w.line(f"switch i32 {key}, label %other [{cases}]")
    ends: list[tuple[str, str, str]] = []
    for label in (*(f"case{i}" for i in range(ways)), "other"):
        inner = Writer(rng)
        inner.count, inner.lines = 100 * (len(ends) + 1), []
        inner.values = {k: list(v) for k, v in w.values.items()}
        for _ in range(2):
            integer(inner, "i32")
        x, before = inner.values["i32"][-1], inner.some("float")
        test = inner.hidden(f"fcmp {rng.choice(FCMP)} float {before}, {inner.some('float')}")
        w.lines.append(f"{label}:")
        w.lines += inner.lines
        w.line(f"br i1 {test}, label %{label}a, label %{label}b")
        start = len(inner.lines)
        floating(inner, "float")
        integer(inner, "i32")
        w.lines.append(f"{label}a:")
        w.lines += inner.lines[start:]
        y, after = inner.values["i32"][-1], inner.values["float"][-1]
        w.line(f"br label %{label}b")
        w.lines.append(f"{label}b:")
        w.line(f"%{label}x = phi i32 [{x}, %{label}], [{y}, %{label}a]")
        w.line(f"%{label}f = phi float [{before}, %{label}], [{after}, %{label}a]")
        w.line("br label %join")
        ends.append((label, f"%{label}x", f"%{label}f"))
    w.lines.append("join:")
    w.line("%jx = phi i32 " + ", ".join(f"[{x}, %{label}b]" for label, x, _ in ends))
    w.line("%jf = phi float " + ", ".join(f"[{f}, %{label}b]" for label, _, f in ends))
    found = [("i32", "%jx"), ("float", "%jf")]
    w.store_outputs(found)
    w.line(f"%early = icmp {rng.choice(ICMP)} i32 %jx, {w.some('i32')}")
    w.line("br i1 %early, label %gone, label %stay")
    w.lines.append("gone:")
    w.line("ret void")
    w.lines.append("stay:")
    w.values["i32"].append("%jx")
    for _ in range(3):
        integer(w, "i32")
    last = [("i32", w.values["i32"][-1])]
    w.store_outputs(last, 2)
    return Function("branches", seed, (w.text(),), tuple(Output(t) for t, _ in (*found, *last)))


def lanes(seed: int) -> Function:
    """Values of other lanes of the wave."""
    w = Writer(random.Random(f"lanes {seed}"))
    at = w.hidden("zext i32 %item to i64")
    for number in range(3):
        to = w.hidden(f"getelementptr i32, ptrG %shared, i64 {at}")
        to = w.hidden(f"getelementptr i8, ptrG {to}, i64 {1024 * number}")
        w.line(f"store i32 {w.some('i32')}, ptrG {to}")
    after = Writer(random.Random(f"lanes after {seed}"))
    at = after.hidden("zext i32 %item to i64")
    found = [("i32", after.hidden("call i32 @below(i32 %item)"))]
    for number in range(3):
        all_ = after.hidden(f"getelementptr i8, ptrG %shared, i64 {1024 * number}")
        to = after.hidden(f"getelementptr i32, ptrG {all_}, i64 {at}")
        own = after.hidden(f"load i32, ptrG {to}")
        for name, lane in (("pull", after.some("i32")), ("first", str(after.rng.randrange(32)))):
            inside = f"i32 {own}, i32 {lane}, i32 %item, ptrG {all_}"
            found.append(("i32", after.hidden(f"call i32 @{name}({inside})")))
    after.store_outputs(found)
    return Function("lanes", seed, (w.text(), after.text()), tuple(Output(t) for t, _ in found))


KINDS: dict[str, Callable[[int], Function]] = {
    "global": global_memory,
    "flat": flat_memory,
    "local": local_memory,
    "private": private_memory,
    "table": table_loads,
    "atomics_global": lambda seed: atomics(seed, "global"),
    "atomics_lds": lambda seed: atomics(seed, "lds"),
    "loops": loops,
    "branches": branches,
    "lanes": lanes,
}
