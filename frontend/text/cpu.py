"""Instructions as LLVM IR for CPUs: `void kernel(ptr args, i64 begin, i64 end)`.

`args` points at 64-bit slots, one for each buffer; the body runs once for each grid block in the
half-open range. Lanes are lanes of vector registers.
"""

from __future__ import annotations

from frontend.instructions.ir import Region, Value
from frontend.text.llvm import Printer
from rawgpu.compiler_bridge import text as ir
from rawgpu.compiler_bridge import types as t
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.target import Target


def kernel_text(name: str, body: Region, target: Target) -> str:
    """The module that defines kernel `name`."""
    module = ir.Module()
    params: list[tuple[t.Type, str] | tuple[t.Type, str, str]] = [
        (t.ptr, "args", "noalias nocapture readonly"),
        (t.i64, "begin"),
        (t.i64, "end"),
    ]
    # prefer-vector-width only steers LLVM's own choices; our vectors are explicit
    attributes = f'nounwind "target-cpu"="{target.cpu}" "prefer-vector-width"="512"'
    function = module.function(name, params, attributes=attributes)
    ops = LlvmOps(function, scalef="avx512f" in target.enabled)
    printer = _CpuPrinter(function, ops)
    printer.x86 = target.arch == "x86_64"
    printer.kernel(body)
    return str(module)


class _CpuPrinter(Printer):
    x86 = False
    streams = False
    """Whether something was stored past the caches."""

    def kernel(self, body: Region) -> None:
        f = self.f
        entry, loop, done = f.current, f.block("block"), f.block("done")
        self._load_arguments(body)
        f.condbr(f.icmp("slt", f.args[1], f.args[2]), loop, done)
        f.at(loop)
        grid = f.phi(t.i64, (f.args[1], entry))
        self.grid = grid
        self.region(body)
        following = f.add(grid, f.const(t.i64, 1), "nuw nsw")
        grid.add(following, f.current)
        f.condbr(f.icmp("slt", following, f.args[2]), loop, done)
        f.at(done)
        if self.streams:
            # what went past the caches is ordered with nothing until then: not even with the
            # store by which this thread will say that it is done
            f.module.declare("llvm.x86.sse.sfence", t.void, [])
            f.line("call void @llvm.x86.sse.sfence()")
        f.ret()

    def on_store(self, v: Value) -> ir.Value:
        self.streams = self.streams or (v.attr[1] and self.x86)
        return super().on_store(v)

    def _load_arguments(self, region: Region) -> None:
        for value in region.values:
            if value.op == "argument":
                where = self.f.gep(self.f.args[0], value.attr, t.i64)
                self.arguments[value.attr] = self.f.load(t.ptr, where, align=8)
            for inner in value.regions:
                self._load_arguments(inner)
