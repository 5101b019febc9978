"""Random LLVM functions, compiled for this processor and for a GPU: a witness from outside.

Each takes two 32-bit, one 64-bit value and two floats of an element and gives 64 bits. What C
leaves undefined is avoided: shift counts are masked, divisors are odd, conversions saturate.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

TYPES = ("i32", "i64", "float", "double", "half", "i16")
WIDTH = {"i32": 32, "i64": 64, "i16": 16}
FLOATS = {"float": "f32", "double": "f64", "half": "f16"}
INTEGER_OPS = ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "urem")
INTRINSICS = (
    "smin", "smax", "umin", "umax", "ctpop", "ctlz", "cttz", "bitreverse", "fshl", "uadd.sat",
    "usub.sat", "sadd.sat", "abs", "bswap",
)  # fmt: skip
FLOAT_INTRINSICS = ("fabs", "floor", "ceil", "trunc", "rint", "minnum", "maxnum", "copysign")


@dataclass
class Writer:
    """A function body being written."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    declares: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def emit(self, type_: str, text: str) -> str:
        name = f"%t{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        self.values.setdefault(type_, []).append(name)
        return name

    def pick(self, type_: str) -> str:
        known = self.values.get(type_)
        if known and self.rng.random() < 0.9:
            return self.rng.choice(known[-8:])
        if type_ in WIDTH:
            return str(self.rng.choice([0, 1, 2, 7, -1, 255, 12345]))
        return self.rng.choice(["0.0", "1.0", "-2.0", "0.5", "8.0"])

    def call(self, name: str, type_: str, arguments: list[str], types: str) -> str:
        self.declares.add(f"declare {type_} @{name}({types})")
        return self.emit(type_, f"call {type_} @{name}({', '.join(arguments)})")

    def step(self) -> None:
        """One more value."""
        type_ = self.rng.choice(TYPES)
        kind = self.rng.randrange(6)
        if kind == 0:
            self.convert(type_)
        elif kind == 1:
            self.compare(type_)
        elif type_ in WIDTH:
            self.integer(type_)
        else:
            self.float(type_)

    def integer(self, type_: str) -> None:
        rng, bits = self.rng, WIDTH[type_]
        if rng.random() < 0.35:
            name = rng.choice(INTRINSICS)
            full = f"llvm.{name}.i{bits}"
            x, y = f"{type_} {self.pick(type_)}", f"{type_} {self.pick(type_)}"
            if name in ("ctpop", "bitreverse", "bswap"):
                self.call(full, type_, [x], type_)
            elif name in ("ctlz", "cttz", "abs"):
                self.call(full, type_, [x, "i1 false"], f"{type_}, i1")
            elif name == "fshl":
                self.call(full, type_, [x, y, f"{type_} 5"], f"{type_}, {type_}, {type_}")
            else:
                self.call(full, type_, [x, y], f"{type_}, {type_}")
            return
        op, x, y = rng.choice(INTEGER_OPS), self.pick(type_), self.pick(type_)
        if op in ("shl", "lshr", "ashr"):
            y = self.emit(type_, f"and {type_} {y}, {bits - 1}")
        elif op in ("udiv", "urem"):
            if bits == 64:
                op = "mul"
            else:
                y = self.emit(type_, f"or {type_} {y}, 1")
        self.emit(type_, f"{op} {type_} {x}, {y}")

    def float(self, type_: str) -> None:
        rng, x, y = self.rng, self.pick(type_), self.pick(type_)
        kind = rng.randrange(4)
        if kind == 0:
            name = f"llvm.{rng.choice(FLOAT_INTRINSICS)}.{FLOATS[type_]}"
            if name.split(".")[1] in ("minnum", "maxnum", "copysign"):
                self.call(name, type_, [f"{type_} {x}", f"{type_} {y}"], f"{type_}, {type_}")
            else:
                self.call(name, type_, [f"{type_} {x}"], type_)
        elif kind == 1 and type_ != "half":
            z = self.pick(type_)
            self.call(
                f"llvm.fma.{FLOATS[type_]}", type_, [f"{type_} {v}" for v in (x, y, z)],
                f"{type_}, {type_}, {type_}",
            )  # fmt: skip
        else:
            op = rng.choice(("fadd", "fsub", "fmul", "fadd"))
            if type_ == "float" and rng.random() < 0.2:
                op = "fdiv"
            self.emit(type_, f"{op} {type_} {x}, {y}")

    def compare(self, type_: str) -> None:
        x, y = self.pick(type_), self.pick(type_)
        if type_ in WIDTH:
            how = self.rng.choice(("eq", "ne", "ult", "sgt", "sle", "uge"))
            test = self.emit("i1", f"icmp {how} {type_} {x}, {y}")
        else:
            how = self.rng.choice(("oeq", "une", "olt", "ogt", "ole", "uge", "uno"))
            test = self.emit("i1", f"fcmp {how} {type_} {x}, {y}")
        other = self.rng.choice(TYPES)
        a, b = self.pick(other), self.pick(other)
        self.emit(other, f"select i1 {test}, {other} {a}, {other} {b}")

    def convert(self, to: str) -> None:
        source = self.rng.choice([t for t in TYPES if t != to])
        x = self.pick(source)
        if source in WIDTH and to in WIDTH:
            op = "trunc" if WIDTH[source] > WIDTH[to] else self.rng.choice(("zext", "sext"))
        elif source in WIDTH:
            if source == "i64" or to == "half":
                return
            op = self.rng.choice(("sitofp", "uitofp"))
        elif to in WIDTH:
            if to == "i64" or source == "half" or to == "i16":
                return
            name = self.rng.choice(("fptosi", "fptoui"))
            full = f"llvm.{name}.sat.{to}.{FLOATS[source]}"
            self.call(full, to, [f"{source} {x}"], source)
            return
        else:
            order = ("half", "float", "double")
            if {source, to} == {"half", "double"}:
                return
            op = "fpext" if order.index(to) > order.index(source) else "fptrunc"
        self.emit(to, f"{op} {source} {x} to {to}")


def body(seed: int, steps: int = 24) -> str:
    """`define internal i64 @f(...)` and what it declares."""
    writer = Writer(random.Random(seed))
    writer.values = {"i32": ["%a", "%b"], "i64": ["%c"], "float": ["%x", "%y"]}
    for _ in range(steps):
        writer.step()
    lines, total = list(writer.lines), "%c"
    for number, type_ in enumerate(TYPES):
        for value in writer.values.get(type_, [])[-2:]:
            name = f"%o{number}{value[1:]}"
            bits = {"half": 16, "float": 32, "double": 64}.get(type_) or WIDTH[type_]
            text = value
            if type_ in FLOATS:  # any NaN as one
                lines.append(f"  {name}n = fcmp uno {type_} {value}, 0.0")
                lines.append(f"  {name}q = select i1 {name}n, {type_} 1.0, {type_} {value}")
                lines.append(f"  {name}i = bitcast {type_} {name}q to i{bits}")
                text = f"{name}i"
            if bits < 64:
                lines.append(f"  {name}w = zext i{bits} {text} to i64")
                text = f"{name}w"
            lines.append(f"  {name}m = mul i64 {total}, 1000003")
            lines.append(f"  {name} = xor i64 {name}m, {text}")
            total = name
    head = "define internal i64 @f(i32 %a, i32 %b, i64 %c, float %x, float %y) alwaysinline {"
    text = "\n".join([*sorted(writer.declares), head, *lines, f"  ret i64 {total}", "}"])
    return text + "\n"


def _element(space: str) -> str:
    p = f"ptr{space}"
    lines = []
    for name, type_, offset in (
        ("a", "i32", 0), ("b", "i32", 4), ("c", "i64", 8), ("x", "float", 16), ("y", "float", 20),
    ):  # fmt: skip
        lines.append(f"  %p{name} = getelementptr i8, {p} %item, i64 {offset}")
        lines.append(f"  %{name} = load {type_}, {p} %p{name}")
    lines.append("  %r = call i64 @f(i32 %a, i32 %b, i64 %c, float %x, float %y)")
    return "\n".join(lines)


RECORD_BYTES = 24


def host_text(seed: int) -> str:
    return (
        body(seed)
        + f"""
define void @k(ptr %in, ptr %out, i64 %n) {{
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %head]
  %at = mul i64 %i, {RECORD_BYTES}
  %item = getelementptr i8, ptr %in, i64 %at
{_element("")}
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %r, ptr %to
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %head, label %done
done:
  ret void
}}
"""
    )


def gpu_text(seed: int, attributes: str) -> str:
    return (
        body(seed)
        + f"""
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {{
  %i32 = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %i32 to i64
  %at = mul i64 %i, {RECORD_BYTES}
  %item = getelementptr i8, ptr addrspace(1) %in, i64 %at
{_element(" addrspace(1)")}
  %to = getelementptr i64, ptr addrspace(1) %out, i64 %i
  store i64 %r, ptr addrspace(1) %to
  ret void
}}
attributes #0 = {{ {attributes} }}
"""
    )
