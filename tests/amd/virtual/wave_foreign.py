"""Generated LLVM functions, compiled for this processor and for a GPU: a witness from outside.

A `Function` is the text of one or more phases. A phase is what one work-item does; between phases
all wait. The text is the same for both machines, but for address spaces (`ptrG` global, `ptrL`
local, `ptrP` private, `ptrK` constant, `ptrF` flat) and for what x86 has in libraries only, which
stands as a function of the prelude (`@ldexp_f32`): an intrinsic on the GPU, arithmetic here.

What LLVM leaves open is avoided: shift counts are masked, divisors are not 0, conversions saturate,
no signalling NaN, no sign of a NaN, no sign of a zero that `minnum` chose. The values of an item
are stored one by one, and compared by type: any NaN equals any NaN, all else bit for bit.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.amd.virtual.foreign_prelude import prelude

ITEMS = 64
RECORD = (
    ("i32", "a", 0), ("i32", "b", 4), ("i64", "c", 8), ("i64", "d", 16), ("float", "x", 24),
    ("float", "y", 28), ("double", "u", 32), ("double", "v", 40), ("half", "p", 48),
    ("half", "q", 50), ("bfloat", "r", 52), ("bfloat", "s", 54), ("i16", "e", 56),
    ("i16", "g", 58), ("i8", "h", 60), ("i8", "j", 61), ("float", "z", 64), ("i32", "k", 68),
    ("half", "o", 72), ("bfloat", "l", 74), ("double", "w", 80),
)  # fmt: skip
"""What an item is given: type, name, offset in bytes."""
RECORD_BYTES = 88
UNIFORMS = (
    ("i32", "sa", 0), ("i32", "sb", 4), ("i64", "sc", 8), ("i64", "sd", 16), ("float", "sx", 24),
    ("float", "sy", 28), ("double", "su", 32), ("half", "sp", 40), ("half", "sq", 42),
    ("i32", "sk", 44),
)  # fmt: skip
"""What all items are given, as arguments of the kernel."""
UNIFORM_BYTES = 48
SHARED_BYTES, OWN_BYTES = 32 << 10, 256
"""Of the buffer that items share, and of each one's part of it."""
TABLE_BYTES = 1024
LDS_BYTES, LDS_OWN_BYTES = 8 << 10, 64
OUTPUTS = 16
"""Most values that an item stores, 8 bytes each."""
BITS = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32,
    "double": 64,
}  # fmt: skip
SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
INTEGERS, FLOATS = ("i8", "i16", "i32", "i64"), ("half", "bfloat", "float", "double")


def constant(type_: str, value: float | int) -> str:
    """A literal of LLVM IR; `value` must be one of the type's."""
    if type_ == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if type_ == "bfloat":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if type_ == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if type_ in FLOATS:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(value)


FLOAT_CONSTANTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 4.0, -4.0, 1.5, -3.0, 0.15625, 100.0)
INTEGER_CONSTANTS = (0, 1, 2, 7, -1, -16, 64, 65, 255, 4096, 12345, -77777, 0x7FFFFFFF, 0x5A5A1234)


@dataclass(frozen=True)
class Output:
    """A value of an item. `near` names a function of Python where the GPU only comes near it."""

    type: str
    near: str = ""


@dataclass(frozen=True)
class Function:
    """The text of each phase; see the module's docstring."""

    kind: str
    seed: int
    phases: tuple[str, ...]
    outputs: tuple[Output, ...]
    uses_lds: bool = False


@dataclass
class Writer:
    """The body of a phase being written."""

    rng: random.Random
    uniform: bool = False
    """Only with values that are the same for all items."""
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self._lines_at_start = [] if self.uniform else [_loads(RECORD, "ptrG", "in")]
        for type_, name, _ in (*(() if self.uniform else RECORD), *UNIFORMS):
            if self.uniform or name[0] != "s" or len(name) == 1:
                self.values.setdefault(type_, []).append(f"%{name}")
        if self.uniform:
            self._narrow_uniforms()

    def _narrow_uniforms(self) -> None:
        for type_ in ("i8", "i16"):
            for name in ("%sa", "%sb"):
                self.emit(type_, f"trunc i32 {name} to {type_}")

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def emit(self, type_: str, text: str) -> str:
        """One more value of a type."""
        name = self.hidden(text)
        self.values.setdefault(type_, []).append(name)
        return name

    def hidden(self, text: str) -> str:
        """A value that is not picked later."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def pick(self, type_: str, constants: float = 0.12) -> str:
        """One of the later values of a type, or a constant."""
        known = self.values.get(type_)
        if not known and type_ == "i1":
            return "true"
        if known and self.rng.random() >= constants:
            return self.rng.choice(known[-10:])
        if type_ in FLOATS:
            return constant(type_, self.rng.choice(FLOAT_CONSTANTS))
        if type_.startswith("<"):
            return "zeroinitializer"
        value = self.rng.choice(INTEGER_CONSTANTS)
        half = 1 << BITS[type_] - 1
        return str((value + half) % (2 * half) - half)

    def some(self, type_: str) -> str:
        """A value, no constant."""
        return self.pick(type_, 0.0)

    def call(self, type_: str, name: str, *arguments: tuple[str, str]) -> str:
        inside = ", ".join(f"{t} {v}" for t, v in arguments)
        return self.emit(type_, f"call {type_} @{name}({inside})")

    def intrinsic(self, type_: str, name: str, *arguments: tuple[str, str]) -> str:
        """`llvm.NAME.SUFFIX` of the result's type."""
        return self.call(type_, f"llvm.{name}.{suffix(type_)}", *arguments)

    def clean(self, type_: str, value: str) -> str:
        """A float, 1.0 for any NaN: its bits may be looked at."""
        test = self.hidden(f"fcmp uno {type_} {value}, {constant(type_, 0.0)}")
        return self.hidden(f"select i1 {test}, {type_} {constant(type_, 1.0)}, {type_} {value}")

    # The end.

    def outputs(self, types: Sequence[str], most: int = OUTPUTS) -> list[tuple[str, str]]:
        """The last values of these types, with their types."""
        found: list[tuple[str, str]] = []
        for type_ in types:
            for value in self.values.get(type_, [])[-6:]:
                found += [(t, v) for t, v in self.flat(type_, value)]
        return found[-most:]

    def flat(self, type_: str, value: str) -> list[tuple[str, str]]:
        """A vector's elements."""
        if not type_.startswith("<"):
            return [(type_, value)]
        count, element = int(type_[1]), type_[5:-1]
        return [
            (element, self.hidden(f"extractelement {type_} {value}, i32 {i}")) for i in range(count)
        ]

    def store_outputs(self, found: Sequence[tuple[str, str]], first: int = 0) -> None:
        for number, (type_, value) in enumerate(found):
            at = self.hidden(f"getelementptr i8, ptrG %out, i64 {8 * (first + number)}")
            if type_ == "i1":
                type_, value = "i8", self.hidden(f"zext i1 {value} to i8")
            self.line(f"store {type_} {value}, ptrG {at}, align 8")

    def text(self) -> str:
        return "\n".join([*self._lines_at_start, *self.lines, "  ret void"])


def suffix(type_: str) -> str:
    if type_.startswith("<"):
        return f"v{type_[1]}{suffix(type_[5:-1])}"
    return SUFFIX.get(type_, type_)


def made(kind: str, seed: int, writer: Writer, types: Sequence[str], near: str = "") -> Function:
    """The function of one phase whose outputs are the writer's last values of `types`."""
    found = writer.outputs(types)
    writer.store_outputs(found)
    return Function(kind, seed, (writer.text(),), tuple(Output(t, near) for t, _ in found))


# The two modules.


def _loads(rows: Sequence[tuple[str, str, int]], pointer: str, base: str) -> str:
    lines = []
    for type_, name, offset in rows:
        lines.append(f"  %{name}_at = getelementptr i8, {pointer} %{base}, i64 {offset}")
        lines.append(f"  %{name} = load {type_}, {pointer} %{name}_at")
    return "\n".join(lines)


SPACES = {"G": 1, "L": 3, "P": 5, "K": 4}
_PARAMETERS = ", ".join(
    ["ptrG %in", "ptrG %out", "ptrG %shared", "ptrK %table", "ptrL %lds", "i32 %item"]
    + [f"{type_} %{name}" for type_, name, _ in UNIFORMS]
)
_UNIFORM_NAMES = ", ".join(f"{type_} %{name}" for type_, name, _ in UNIFORMS)


def _spaced(text: str, gpu: bool) -> str:
    text = text.replace("castF ptrG", "addrspacecast ptrG" if gpu else "bitcast ptrG")
    text = text.replace("castF ptrL", "addrspacecast ptrL" if gpu else "bitcast ptrL")
    text = text.replace("castF ptrP", "addrspacecast ptrP" if gpu else "bitcast ptrP")
    if not gpu:
        text = text.replace(", addrspace(5)", "")
    return re.sub(
        r"\bptr([GLPKF])\b",
        lambda m: f"ptr addrspace({SPACES[m[1]]})" if gpu and m[1] in SPACES else "ptr",
        text,
    )


def _bodies(functions: Sequence[Function]) -> str:
    return "\n".join(
        f"define internal void @f{n}_{phase}({_PARAMETERS}) alwaysinline {{\n{text}\n}}"
        for n, function in enumerate(functions)
        for phase, text in enumerate(function.phases)
    )


def _declarations(text: str) -> str:
    """Declarations of the intrinsics that a text calls, from how it calls them."""
    found = {}
    for type_, name, inside in re.findall(
        r"call ([^@]+?) @(llvm\.[\w.]+)\(((?:[^()]|\(\d+\))*)\)", text
    ):
        if f"@{name}(" in found:
            continue
        types = re.findall(
            r"(?:^|, )((?:ptr(?: addrspace\(\d+\))?|<[^>]*>|\w+))(?= )",
            inside.replace("immarg", ""),
        )
        found[f"@{name}("] = f"declare {type_} @{name}({', '.join(types)})"
    return "\n".join(found.values())


def host_text(functions: Sequence[Function], lanes: int) -> str:
    """`@k0`, `@k1`, …: void (in, out, shared, table, lds, uniforms)."""
    kernels = []
    for n, function in enumerate(functions):
        lines = [_loads(UNIFORMS, "ptr", "uniforms"), "  br label %p0"]
        for phase in range(len(function.phases)):
            before = f"%d{phase - 1}" if phase else "%entry"
            lines.append(f"""p{phase}:
  %i{phase} = phi i32 [0, {before}], [%n{phase}, %p{phase}]
  %w{phase} = zext i32 %i{phase} to i64
  %ia{phase} = mul i64 %w{phase}, {RECORD_BYTES}
  %in{phase} = getelementptr i8, ptr %in, i64 %ia{phase}
  %oa{phase} = mul i64 %w{phase}, {8 * OUTPUTS}
  %out{phase} = getelementptr i8, ptr %out, i64 %oa{phase}
  call void @f{n}_{phase}(ptr %in{phase}, ptr %out{phase}, ptr %shared, ptr %table, ptr %lds, i32 %i{phase}, {_UNIFORM_NAMES})
  %n{phase} = add i32 %i{phase}, 1
  %more{phase} = icmp ult i32 %n{phase}, {ITEMS}
  br i1 %more{phase}, label %p{phase}, label %d{phase}
d{phase}:""")  # noqa: E501
            last = phase == len(function.phases) - 1
            lines.append("  ret void" if last else f"  br label %p{phase + 1}")
        kernels.append(
            f"define void @k{n}(ptr %in, ptr %out, ptr %shared, ptr %table, ptr %lds, "
            "ptr %uniforms) {\nentry:\n" + "\n".join(lines) + "\n}"
        )
    bodies = _bodies(functions)
    text = _spaced(prelude(gpu=False, lanes=lanes, used=bodies) + "\n" + bodies, gpu=False)
    text = "\n".join([text, *kernels])
    return _declarations(text) + "\n" + text + "\n"


def gpu_text(functions: Sequence[Function], attributes: str, lanes: int) -> str:
    """Kernels `@k0`, `@k1`, …: (in, out, shared, table, uniforms by value)."""
    kernels = []
    for n, function in enumerate(functions):
        lds = "null"
        if function.uses_lds:
            lds = f"@lds{n}"
            kernels.append(
                f"{lds} = internal addrspace(3) global [{LDS_BYTES} x i8] poison, align 16"
            )
        lines = [
            f"""  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %w = zext i32 %i to i64
  %ia = mul i64 %w, {RECORD_BYTES}
  %mine = getelementptr i8, ptrG %in, i64 %ia
  %oa = mul i64 %w, {8 * OUTPUTS}
  %to = getelementptr i8, ptrG %out, i64 %oa"""
        ]
        for phase in range(len(function.phases)):
            if phase:
                lines.append('  fence syncscope("workgroup") release')
                lines.append("  call void @llvm.amdgcn.s.barrier()")
                lines.append('  fence syncscope("workgroup") acquire')
            lines.append(
                f"  call void @f{n}_{phase}(ptrG %mine, ptrG %to, ptrG %shared, ptrK %table, "
                f"ptrL {lds}, i32 %i, {_UNIFORM_NAMES})"
            )
        kernels.append(
            f"define amdgpu_kernel void @k{n}(ptrG %in, ptrG %out, ptrG %shared, ptrK %table, "
            f"{_UNIFORM_NAMES}) #0 {{\n" + "\n".join(lines) + "\n  ret void\n}"
        )
    bodies = _bodies(functions)
    whole = [prelude(gpu=True, lanes=lanes, used=bodies), bodies, *kernels]
    text = _spaced("\n".join(whole), gpu=True)
    return f"{_declarations(text)}\n{text}\nattributes #0 = {{ {attributes} }}\n"


Maker = Callable[[int, random.Random], Function]
