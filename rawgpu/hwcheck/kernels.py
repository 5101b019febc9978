"""The kernels that stages run, as LLVM IR: bodies written once, and a dialect for each target.

A body is a function of the kernel's arguments, the work-item's number in its block and the block's
number. The dialect has the address spaces, and the kernel around it: on a GPU the hardware counts
items and blocks, on a CPU two loops do. `$G`, `$L` and `$P` are pointers to global, local and
private memory, `$ITEMS` the block's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from rawgpu.errors import UnsupportedDevice


@dataclass(frozen=True)
class Text:
    """A kernel. `arguments` are LLVM types with `$G`; `outside` stands before the functions."""

    arguments: tuple[str, ...]
    body: str
    outside: str = ""
    parallel: bool = False
    """Whether items of a block meet: not for targets whose blocks are loops."""


@dataclass(frozen=True)
class Dialect:
    """How one target's kernels look. Templates; `$NAME` and `$PARAMETERS` are filled in."""

    pointers: Mapping[str, str]
    spaces: Mapping[str, str]
    head: str
    kernel: str
    barrier: str
    parallel: bool
    mark: str = ""
    """What a vendor's probe finds in machine code and spoils."""


AMDGPU = Dialect(
    pointers={"G": "ptr addrspace(1)", "L": "ptr addrspace(3)", "P": "ptr addrspace(5)"},
    spaces={"LOCAL": "addrspace(3)", "PRIVATE": ", addrspace(5)"},
    head="""
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.s.sleep(i32)
attributes #0 = { nounwind "target-cpu"="$CPU" "amdgpu-flat-work-group-size"="1,$ITEMS"
  "uniform-work-group-size"="true" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr"
  "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-workgroup-id-y"
  "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z"
  "amdgpu-no-lds-kernel-id" "amdgpu-no-completion-action" "amdgpu-no-default-queue"
  "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-multigrid-sync-arg"
  "amdgpu-no-flat-scratch-init" }
""",
    kernel="""
define amdgpu_kernel void @$NAME($PARAMETERS) #0 {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  call void @body($ARGUMENTS)
  ret void
}
""",
    barrier="""
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
""",
    parallel=True,
    mark="  call void @llvm.amdgcn.s.sleep(i32 85)",
)
HOST = Dialect(
    pointers={"G": "ptr", "L": "ptr", "P": "ptr"},
    spaces={"LOCAL": "", "PRIVATE": ""},
    head="attributes #0 = { nounwind }\n",
    kernel="""
define void @$NAME(ptr %slots, i64 %begin, i64 %end) {
entry:
$LOADS
  br label %blocks
blocks:
  %b = phi i64 [%begin, %entry], [%b1, %block.done]
  %group = trunc i64 %b to i32
  br label %items
items:
  %item = phi i32 [0, %blocks], [%item1, %items]
  call void @body($ARGUMENTS)
  %item1 = add i32 %item, 1
  %more = icmp slt i32 %item1, $ITEMS
  br i1 %more, label %items, label %block.done
block.done:
  %b1 = add i64 %b, 1
  %again = icmp slt i64 %b1, %end
  br i1 %again, label %blocks, label %end.all
end.all:
  ret void
}
""",
    barrier="",
    parallel=False,
)
DIALECTS: dict[str, Dialect] = {"amdgcn": AMDGPU, "x86_64": HOST, "aarch64": HOST}
"""By the first word of the target's triple."""


def dialect_of(target: Mapping[str, str]) -> Dialect:
    """The dialect of a device's target."""
    arch = target["triple"].split("-", 1)[0]
    if arch not in DIALECTS:
        raise UnsupportedDevice(
            f"no dialect for kernels of {arch!r}", hint="rawgpu/hwcheck/kernels.py has a row each"
        )
    return DIALECTS[arch]


INDEX = """
  %base = mul i32 %group, $ITEMS
  %index = add i32 %base, %item
  %at = zext i32 %index to i64
"""

ARGUMENT_TYPES = (
    "i8", "i32", "i16", "$G", "i64", "float", "i8", "half", "double", "i16", "$G", "i8", "i64",
    "i32", "float", "double", "i8", "i8", "$G", "i16",
)  # fmt: skip
"""After the output: every size, next to every other, so that offsets have gaps."""


def _arguments_body() -> str:
    """Item 0 stores each argument, widened, in a slot of 8 bytes."""
    lines = []
    for number, type_ in enumerate(ARGUMENT_TYPES):
        name, bits = f"%a{number + 1}", {"half": 16, "float": 32, "double": 64}.get(type_, 0)
        value = name
        if type_ == "$G":
            lines.append(f"  %w{number} = ptrtoint $G {name} to i64")
            value, size = f"%w{number}", 64
        elif bits:
            lines.append(f"  %i{number} = bitcast {type_} {name} to i{bits}")
            value, size = f"%i{number}", bits
        else:
            size = int(type_[1:])
        if size < 64:
            lines.append(f"  %z{number} = zext i{size} {value} to i64")
            value = f"%z{number}"
        lines.append(f"  %p{number} = getelementptr i64, $G %a0, i64 {number}")
        lines.append(f"  store i64 {value}, $G %p{number}")
    return "\n".join(lines) + "\n  ret void\n"


KERNELS: dict[str, Text] = {
    "empty": Text((), "  ret void\n"),
    "number": Text(
        ("$G", "i32"),
        INDEX + """
  %p = getelementptr i32, $G %a0, i64 %at
  %x = mul i32 %index, 2654435761
  %v = add i32 %x, %a1
  store i32 %v, $G %p
  ret void
""",
    ),
    "arguments": Text(("$G", *ARGUMENT_TYPES), _arguments_body()),
    "saxpy": Text(
        ("$G", "$G", "float"),
        INDEX + """
  %p = getelementptr float, $G %a0, i64 %at
  %q = getelementptr float, $G %a1, i64 %at
  %x = load float, $G %p
  %y = load float, $G %q
  %m = fmul float %x, %a2
  %s = fadd float %m, %y
  store float %s, $G %q
  ret void
""",
    ),
    "copy": Text(
        ("$G", "$G"),
        INDEX + """
  %p = getelementptr <4 x i32>, $G %a0, i64 %at
  %q = getelementptr <4 x i32>, $G %a1, i64 %at
  %x = load <4 x i32>, $G %p
  store <4 x i32> %x, $G %q
  ret void
""",
    ),
    "scratch": Text(
        ("$G", "i32"),
        """
entry:
  %room = alloca [$WORDS x i32], align 4$PRIVATE
  br label %fill
fill:
  %i = phi i32 [0, %entry], [%i1, %fill]
  %p = getelementptr [$WORDS x i32], $P %room, i32 0, i32 %i
  %square = mul i32 %i, %i
  %with = add i32 %square, %item
  %v = add i32 %with, %group
  store volatile i32 %v, $P %p
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, $WORDS
  br i1 %more, label %fill, label %done
done:
  %far = mul i32 %item, %a1
  %k = urem i32 %far, $WORDS
  %q = getelementptr [$WORDS x i32], $P %room, i32 0, i32 %k
  %r = load volatile i32, $P %q
""" + INDEX + """
  %to = getelementptr i32, $G %a0, i64 %at
  store i32 %r, $G %to
  ret void
""",
    ),
    "local": Text(
        ("$G", "i32"),
        """
entry:
  br label %fill
fill:
  %i = phi i32 [%item, %entry], [%i1, %fill]
  %p = getelementptr [$WORDS x i32], $L @words, i32 0, i32 %i
  %x = mul i32 %i, 2654435761
  %y = add i32 %x, %group
  %v = add i32 %y, %a1
  store i32 %v, $L %p
  %i1 = add i32 %i, $ITEMS
  %more = icmp ult i32 %i1, $WORDS
  br i1 %more, label %fill, label %meet
meet:
$BARRIER
  br label %sum
sum:
  %j = phi i32 [%item, %meet], [%j1, %sum]
  %s = phi i32 [0, %meet], [%s2, %sum]
  %m = sub i32 $LAST, %j
  %q = getelementptr [$WORDS x i32], $L @words, i32 0, i32 %m
  %r = load i32, $L %q
  %s1 = mul i32 %s, 31
  %s2 = add i32 %s1, %r
  %j1 = add i32 %j, $ITEMS
  %on = icmp ult i32 %j1, $WORDS
  br i1 %on, label %sum, label %done
done:
""" + INDEX + """
  %to = getelementptr i32, $G %a0, i64 %at
  store i32 %s2, $G %to
  ret void
""",
        outside="@words = internal $LOCAL global [$WORDS x i32] poison, align 16\n",
        parallel=True,
    ),
    "barriers": Text(
        ("$G", "i32"),
        """
entry:
  %start = add i32 %item, %group
  br label %round
round:
  %r = phi i32 [0, %entry], [%r1, %round]
  %v = phi i32 [%start, %entry], [%v1, %round]
  %p = getelementptr [$ITEMS x i32], $L @exchange, i32 0, i32 %item
  store i32 %v, $L %p
$BARRIER
  %step = mul i32 %r, 7
  %near = add i32 %step, 1
  %sum = add i32 %item, %near
  %other = urem i32 %sum, $ITEMS
  %q = getelementptr [$ITEMS x i32], $L @exchange, i32 0, i32 %other
  %got = load i32, $L %q
  %three = mul i32 %got, 3
  %v1 = add i32 %three, %r
$BARRIER
  %r1 = add i32 %r, 1
  %more = icmp slt i32 %r1, %a1
  br i1 %more, label %round, label %done
done:
""" + INDEX + """
  %to = getelementptr i32, $G %a0, i64 %at
  store i32 %v1, $G %to
  ret void
""",
        outside="@exchange = internal $LOCAL global [$ITEMS x i32] poison, align 16\n",
        parallel=True,
    ),
    "matmul": Text(
        ("$G", "$G", "$G", "i32"),
        """
entry:
""" + INDEX + """
  %row = udiv i32 %index, %a3
  %column = urem i32 %index, %a3
  %n = zext i32 %a3 to i64
  %row64 = zext i32 %row to i64
  %column64 = zext i32 %column to i64
  %start = mul i64 %row64, %n
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %loop]
  %s = phi float [0.0, %entry], [%s1, %loop]
  %ai = add i64 %start, %k
  %bk = mul i64 %k, %n
  %bi = add i64 %bk, %column64
  %pa = getelementptr float, $G %a1, i64 %ai
  %pb = getelementptr float, $G %a2, i64 %bi
  %x = load float, $G %pa
  %y = load float, $G %pb
  %m = fmul contract float %x, %y
  %s1 = fadd contract float %s, %m
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %done
done:
  %to = getelementptr float, $G %a0, i64 %at
  store float %s1, $G %to
  ret void
""",
    ),
    "peek": Text(
        ("$G", "i64"),
        """
  %p = inttoptr i64 %a1 to $G
  %v = load volatile i32, $G %p
  store i32 %v, $G %a0
  ret void
""",
    ),
    "poke": Text(
        ("$G", "i64"),
        """
  %p = inttoptr i64 %a1 to $G
  store volatile i32 1, $G %p
  store i32 1, $G %a0
  ret void
""",
    ),
    "illegal": Text(
        ("$G",),
        """
$MARK
  store i32 1, $G %a0
  ret void
""",
    ),
    "forever": Text(
        ("$G",),
        """
  br label %loop
loop:
  %v = load volatile i32, $G %a0
  %go = icmp ne i32 %v, 287454020
  br i1 %go, label %loop, label %done
done:
  ret void
""",
    ),
}  # fmt: skip


def module_text(name: str, target: Mapping[str, str], items: int, **values: int) -> str:
    """The module that defines kernel `name` for blocks of `items`; `values` fill `$NAMES`."""
    text, dialect = KERNELS[name], dialect_of(target)
    if text.parallel and not dialect.parallel:
        raise UnsupportedDevice(f"kernel {name!r} needs blocks whose items run side by side")
    arguments = [
        f"{Template(type_).substitute(dialect.pointers)} %a{number}"
        for number, type_ in enumerate(text.arguments)
    ]
    inner = [*arguments, "i32 %item", "i32 %group"]
    words = {
        **dialect.pointers,
        **dialect.spaces,
        **{key.upper(): str(value) for key, value in values.items()},
        "BARRIER": dialect.barrier,
        "ITEMS": str(items),
        "CPU": target["cpu"],
        "NAME": name,
        "MARK": dialect.mark,
        "PARAMETERS": ", ".join(arguments),
        "ARGUMENTS": ", ".join(inner),
        "LOADS": _loads(arguments),
    }
    body = f"define internal void @body({', '.join(inner)}) alwaysinline #0 {{{text.body}}}\n"
    whole = dialect.head + text.outside + body + dialect.kernel
    return Template(whole).substitute(words)


def _loads(arguments: list[str]) -> str:
    """A CPU kernel's arguments out of their 64-bit slots."""
    lines = []
    for number, argument in enumerate(arguments):
        type_, name = argument.rsplit(" ", 1)
        lines.append(f"  %slot{number} = getelementptr i64, ptr %slots, i64 {number}")
        lines.append(f"  {name} = load {type_}, ptr %slot{number}")
    return "\n".join(lines)
