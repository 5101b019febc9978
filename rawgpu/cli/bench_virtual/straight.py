"""Straight code of a wanted length, to time the lifter with: a mix of arithmetic and accesses."""

from __future__ import annotations

from collections.abc import Iterator

from rawgpu.compiler_bridge.llvm import Target, compile_ir

LIVE = 24
"""Values that are alive at a time."""
ITEMS = 64
_HEAD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.sqrt.f32(float)
@room = internal addrspace(3) global [1024 x i32] poison, align 16
define amdgpu_kernel void @straight(ptr addrspace(1) %in, ptr addrspace(1) %out) #0 {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %in.at = getelementptr i32, ptr addrspace(1) %in, i32 %item
  %out.at = getelementptr i32, ptr addrspace(1) %out, i32 %item
  %room.at = getelementptr i32, ptr addrspace(3) @room, i32 %item
"""


def _body(steps: int, salt: int) -> Iterator[str]:
    live = []
    for i in range(LIVE):
        yield f"  %p{i} = getelementptr i32, ptr addrspace(1) %in.at, i32 {64 * i}"
        yield f"  %x{i} = load i32, ptr addrspace(1) %p{i}"
        live.append(f"%x{i}")
    yield f"  %salted = xor i32 {live[1]}, {salt}"
    live[1] = "%salted"
    for n in range(steps):
        a, b, c = (live[(n * k + k) % LIVE] for k in (1, 5, 7))
        yield from _step(n, a, b, c)
        live[n % LIVE] = f"%r{n}"
    for i, value in enumerate(live):
        yield f"  %q{i} = getelementptr i32, ptr addrspace(1) %out.at, i32 {64 * i}"
        yield f"  store i32 {value}, ptr addrspace(1) %q{i}"


def _step(n: int, a: str, b: str, c: str) -> Iterator[str]:
    """One instruction, or few, that make %r<n>."""
    kind = n % 16
    plain = {1: "add", 4: "xor", 6: "mul", 9: "sub", 12: "and"}
    if kind in plain:
        yield f"  %r{n} = {plain[kind]} i32 {a}, {b}"
    elif kind in (3, 11):
        place = f"ptr addrspace(3) %l{n}"
        yield f"  %l{n} = getelementptr i32, ptr addrspace(3) %room.at, i32 {64 * (n % 13)}"
        yield f"  store i32 {a}, {place}"
        yield f"  %m{n} = getelementptr i32, ptr addrspace(3) %room.at, i32 {64 * (n % 7)}"
        yield f"  %r{n} = load i32, ptr addrspace(3) %m{n}"
    elif kind == 7:
        yield f"  %s{n} = and i32 {b}, 31"
        yield f"  %r{n} = shl i32 {a}, %s{n}"
    elif kind == 14:
        yield f"  %c{n} = icmp ult i32 {a}, {b}"
        yield f"  %r{n} = select i1 %c{n}, i32 {b}, i32 {c}"
    else:
        for letter, value in zip("fgh", (a, b, c), strict=True):
            yield f"  %{letter}{n} = bitcast i32 {value} to float"
        call = {
            2: f"call float @llvm.minnum.f32(float %f{n}, float %g{n})",
            10: f"fadd float %f{n}, %g{n}",
        }.get(kind, f"call float @llvm.fma.f32(float %f{n}, float %g{n}, float %h{n})")
        yield f"  %t{n} = {call}"
        yield f"  %r{n} = bitcast float %t{n} to i32"


def straight_code(steps: int, chip: str, salt: int = 0) -> bytes:
    """An object with the kernel `straight` of about `steps` instructions and a few more.

    `salt`, 31 bits, goes into the code, so that no cache knows it.
    """
    words = " ".join(
        f'"amdgpu-no-{word}"'
        for word in ("dispatch-ptr", "queue-ptr", "implicitarg-ptr", "dispatch-id",
                     "workgroup-id-x", "workgroup-id-y", "workgroup-id-z", "workitem-id-y",
                     "workitem-id-z", "lds-kernel-id", "flat-scratch-init")
    )  # fmt: skip
    attributes = (
        f'attributes #0 = {{ nounwind "target-cpu"="{chip}" '
        f'"amdgpu-flat-work-group-size"="{ITEMS},{ITEMS}" {words} }}'
    )
    text = _HEAD + "\n".join(_body(steps, salt)) + "\n  ret void\n}\n" + attributes + "\n"
    return compile_ir(text, Target("amdgcn-amd-amdhsa", chip, ""))
