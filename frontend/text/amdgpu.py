"""Instructions as LLVM IR for AMD GPUs: a block of the grid is a work-group of one wave.

A vector value is one scalar in each work-item, so the lanes that the loop level speaks of are the
wave's lanes, and what is the same in all lanes is computed by all of them (LLVM finds out and uses
scalar registers). One wave needs no barriers: its local-memory operations are in order, and a fence
is a wait.

Every work-item of a wave stores a scalar, all the same value: so each sees its own store, and no
fence is needed between a scalar store and a scalar load.
"""

from __future__ import annotations

from collections.abc import Sequence

from frontend.instructions.ir import Region, Value
from frontend.text.llvm import SCALARS, Printer
from rawgpu.compiler_bridge import text as ir
from rawgpu.compiler_bridge import types as t
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.target import Target

GLOBAL, LOCAL = 1, 3
# What a kernel does not read need not be set up by the driver.
UNUSED = (
    "dispatch-ptr", "queue-ptr", "implicitarg-ptr", "dispatch-id", "workgroup-id-y",
    "workgroup-id-z", "workitem-id-y", "workitem-id-z", "lds-kernel-id", "completion-action",
    "default-queue", "heap-ptr", "hostcall-ptr", "multigrid-sync-arg", "flat-scratch-init",
)  # fmt: skip


def kernel_text(name: str, body: Region, target: Target, buffers: int, lanes: int) -> str:
    """The module that defines kernel `name`, of `buffers` addresses, for work-groups of `lanes`."""
    module = ir.Module()
    params = [(ir.Type("ptr", 64, 0, GLOBAL), f"b{i}") for i in range(buffers)]
    attributes = " ".join(
        [
            "nounwind",
            f'"target-cpu"="{target.cpu}"',
            f'"amdgpu-flat-work-group-size"="{lanes},{lanes}"',
            '"uniform-work-group-size"="true"',
            *(f'"amdgpu-no-{word}"' for word in UNUSED),
        ]
    )
    function = module.function(name, params, convention="amdgpu_kernel", attributes=attributes)
    _AmdPrinter(function, LlvmOps(function, branches=False, table_space=4), lanes).kernel(body)
    return str(module)


class _AmdPrinter(Printer):
    short_counters = True

    def __init__(self, function: ir.Function, ops: LlvmOps, lanes: int) -> None:
        super().__init__(function, ops)
        self.lanes = lanes

    def kernel(self, body: Region) -> None:
        f = self.f
        item = f.intrinsic("llvm.amdgcn.workitem.id.x", t.i32, [], suffix=[])
        group = f.intrinsic("llvm.amdgcn.workgroup.id.x", t.i32, [], suffix=[])
        self.item = item
        self.wide_item = f.cast("zext", item, t.i64)
        self.grid = f.cast("zext", group, t.i64)
        self.arguments = dict(enumerate(f.args))
        self.region(body)
        f.ret()

    def type_of(self, value: Value) -> t.Type:
        """One lane's share: a work-item holds a scalar of every value.

        Not of an address, whose space depends on what it points to; it carries its own type.
        """
        assert value.kind != "ptr", value
        return SCALARS[value.kind]

    # ---- lanes

    def on_iota(self, v: Value) -> ir.Value:
        f, type_ = self.f, SCALARS[v.kind]
        start, step = v.attr
        item = self.wide_item if v.kind == "i64" else self.item
        if item.type != type_:
            item = f.cast("trunc", item, type_)
        scaled = f.binary("mul", item, f.const(type_, step)) if step != 1 else item
        return f.binary("add", scaled, f.const(type_, start)) if start else scaled

    def on_splat(self, v: Value) -> ir.Value:
        return self.known[v.args[0]]

    def on_extract(self, v: Value) -> ir.Value:
        return self._lane(self.known[v.args[0]], v.attr)

    def on_insert(self, v: Value) -> ir.Value:
        x, scalar = (self.known[a] for a in v.args)
        here = self.f.icmp("eq", self.item, self.f.const(t.i32, v.attr))
        return self.f.select(here, scalar, x)

    def _words(self, x: ir.Value) -> list[ir.Value]:
        """The value as 32-bit words, which is what moves between lanes."""
        f = self.f
        if x.type.bits <= 32:
            whole = x if x.type.is_int else f.bitcast(x, t.Type("int", x.type.bits))
            return [whole if x.type.bits == 32 else f.cast("zext", whole, t.i32)]
        pair = f.bitcast(x, t.vector(t.i32, 2))
        return [f.extract(pair, 0), f.extract(pair, 1)]

    def _joined(self, words: Sequence[ir.Value], type_: t.Type) -> ir.Value:
        f = self.f
        if len(words) == 1:
            bits = t.Type("int", type_.bits)
            whole = words[0] if type_.bits == 32 else f.cast("trunc", words[0], bits)
            return whole if type_.is_int else f.bitcast(whole, type_)
        pair = f.insert(f.undef(t.vector(t.i32, 2)), words[0], 0)
        return f.bitcast(f.insert(pair, words[1], 1), type_)

    def _lane(self, x: ir.Value, lane: int) -> ir.Value:
        """One lane's value, in all lanes."""
        number = self.f.const(t.i32, lane)
        words = [
            self.f.intrinsic("llvm.amdgcn.readlane", t.i32, [w, number]) for w in self._words(x)
        ]
        return self._joined(words, x.type)

    def _permuted(self, x: ir.Value, lane: ir.Value) -> ir.Value:
        """In each lane the value of lane `lane`, counted round the wave."""
        where = self.f.shl(lane, self.f.const(t.i32, 2))
        words = [
            self.f.intrinsic("llvm.amdgcn.ds.bpermute", t.i32, [where, w], suffix=[])
            for w in self._words(x)
        ]
        return self._joined(words, x.type)

    def on_shuffle(self, v: Value) -> ir.Value:
        """Lanes at even steps from `a` or `b`; nothing else is asked for on this target."""
        f, picks = self.f, v.attr
        a, b = (self.known[x] for x in v.args)
        half = v.args[0].lanes
        step = picks[1] - picks[0] if len(picks) > 1 else 0
        assert all(p == picks[0] + i * step for i, p in enumerate(picks)), (v, picks)
        lane = f.add(f.binary("mul", self.item, f.const(t.i32, step)), f.const(t.i32, picks[0]))
        if max(picks) < half:
            return self._permuted(a, lane)
        moved = f.add(lane, f.const(t.i32, -half))
        if min(picks) >= half:
            return self._permuted(b, moved)
        first = f.icmp("slt", lane, f.const(t.i32, half))
        return f.select(first, self._permuted(a, lane), self._permuted(b, moved))

    def on_combine(self, v: Value) -> ir.Value:
        """Halves onto one another; the result ends in lane 0 and is read from there."""
        f, x, distance = self.f, self.known[v.args[0]], v.args[0].lanes // 2
        while distance:
            moved = self._permuted(x, f.add(self.item, f.const(t.i32, distance)))
            x = self.binary(v.attr, x, moved)
            distance //= 2
        return self._lane(x, 0)

    # ---- memory

    def on_scratch(self, v: Value) -> ir.Value:
        name, size_bytes = v.attr
        line = f"internal addrspace({LOCAL}) global [{size_bytes} x i8] poison, align 64"
        return self.f.module.global_variable(f"{self.f.name}.{name}", line, space=LOCAL)

    def on_offset(self, v: Value) -> ir.Value:
        return self.f.gep(self.known[v.args[0]], v.attr, t.i8, inbounds=False)

    def _own(self, v: Value, address: Value) -> ir.Value:
        """This lane's address of a row of elements that starts at a common address."""
        where = self.known[address]
        if address.lanes > 1 or v.lanes == 1:
            return where
        return self.f.gep(where, self.wide_item, self.type_of(v), inbounds=False)

    def _safe(self, v: Value, address: Value, mask: ir.Value) -> ir.Value:
        """This lane's address, or one that can be read without harm."""
        root = address
        while root.op in ("address", "offset"):
            root = root.args[0]
        where = self._own(v, address)
        return self.f.select(mask, where, self._any(where, root))

    def _any(self, like: ir.Value, root: Value) -> ir.Value:
        base = self.known[root]
        assert base.type == like.type, (root, like)
        return base

    def on_load(self, v: Value) -> ir.Value:
        return self.f.load(self.type_of(v), self._own(v, v.args[0]), align=v.attr[0])

    def on_masked_load(self, v: Value) -> ir.Value:
        mask = self.known[v.args[1]]
        raw = self.f.load(self.type_of(v), self._safe(v, v.args[0], mask), align=v.attr)
        return self.f.select(mask, raw, self.f.const(raw.type, 0))

    def on_gather(self, v: Value) -> ir.Value:
        return self.on_masked_load(v)

    def on_store(self, v: Value) -> ir.Value:
        value, address = v.args
        self.f.store(self.known[value], self._own(value, address), align=v.attr[0])
        return self.known[value]

    def on_masked_store(self, v: Value) -> ir.Value:
        value, address, mask = v.args
        f = self.f
        inside, after = f.block("store"), f.block("stored")
        f.condbr(self.known[mask], inside, after)
        f.at(inside)
        f.store(self.known[value], self._own(value, address), align=v.attr)
        f.br(after)
        f.at(after)
        return self.known[value]

    def on_scatter(self, v: Value) -> ir.Value:
        return self.on_masked_store(v)

    def on_prefetch(self, v: Value) -> None:
        """Nothing: waves hide latency."""

    def on_fence(self, v: Value) -> None:
        self.f.line('fence syncscope("workgroup") seq_cst')
