"""Instructions as LLVM IR: what is the same on every target; `cpu.py`, `amdgpu.py` do the rest.

Elementary functions become our own polynomials (`rawgpu.compiler_bridge.maths`): LLVM would leave
calls to a C library that nobody links.
"""

from __future__ import annotations

from collections.abc import Callable

from frontend.instructions.ir import Region, Value
from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge import text as ir
from rawgpu.compiler_bridge import types as t
from rawgpu.compiler_bridge.maths_llvm import LlvmOps

SCALARS = {
    "i1": t.i1, "i8": t.i8, "i16": t.i16, "i32": t.i32, "i64": t.i64,
    "f16": t.f16, "f32": t.f32, "f64": t.f64, "ptr": t.ptr,
}  # fmt: skip
# Instructions that one LLVM instruction or intrinsic does.
_PLAIN = frozenset({
    "add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and", "or", "xor", "shl", "lshr", "ashr",
    "fadd", "fsub", "fmul", "fdiv",
})  # fmt: skip
_INTRINSIC_BINARY = {
    "copysign": "copysign", "fmaximum": "maximum", "fminimum": "minimum",
    "smax": "smax", "smin": "smin", "umax": "umax", "umin": "umin",
}  # fmt: skip
_INTRINSIC_UNARY = frozenset(["fabs", "floor", "ceil", "trunc", "roundeven"])
_CASTS = {"itrunc": "trunc"}


def fits(count: Value) -> bool:
    """Whether a loop's bound leaves room for a last step in 31 bits."""
    return 0 <= int(count.attr) < 1 << 30


class Printer:
    """Prints regions into one function; what a target does its own way it overrides.

    `on_<instruction>` prints an instruction that has a form of its own.
    """

    short_counters = False
    """Whether loops count in 32 bits where those do."""

    def __init__(self, function: ir.Function, maths_ops: LlvmOps) -> None:
        self.f = function
        self.known: dict[Value, ir.Value] = {}
        self.maths = maths_ops
        self.arguments: dict[int, ir.Value] = {}
        self.results: dict[Value, list[ir.Value]] = {}
        self.grid: ir.Value | None = None

    def region(self, region: Region) -> None:
        for value in region.values:
            if value.op == "loop":
                self._loop(value)
            elif value.op == "if":
                self._if(value)
            else:
                made = self._plain(value)
                if value.kind:
                    assert made is not None, value.op
                    self.known[value] = made

    def type_of(self, value: Value) -> t.Type:
        scalar = SCALARS[value.kind]
        return scalar if value.lanes == 1 else t.vector(scalar, value.lanes)

    def _loop(self, value: Value) -> None:
        f, region = self.f, value.regions[0]
        start, stop, *carried = (self.known[a] for a in value.args)
        type_ = t.i64
        if self.short_counters and all(a.is_constant and fits(a) for a in value.args[:2]):
            type_ = t.i32
            start, stop = (f.const(type_, int(a.attr)) for a in value.args[:2])
        before, body, after = f.current, f.block("loop"), f.block("after")
        f.br(body)
        f.at(body)
        index = f.phi(type_, (start, before))
        self.known[region.arguments[0]] = index if type_ is t.i64 else f.cast("zext", index, t.i64)
        phis = []
        for argument, first in zip(region.arguments[1:], carried, strict=True):
            phis.append(f.phi(first.type, (first, before)))
            self.known[argument] = phis[-1]
        self.region(region)
        following = f.add(index, f.const(type_, value.attr), "nuw nsw")
        index.add(following, f.current)
        for phi, result in zip(phis, region.results, strict=True):
            phi.add(self.known[result], f.current)
        f.condbr(f.icmp("slt", following, stop), body, after)
        f.blocks.append(f.blocks.pop(f.blocks.index(after)))
        f.at(after)
        self.results[value] = [self.known[result] for result in region.results]

    def _if(self, value: Value) -> None:
        f = self.f
        inside, after = f.block("then"), f.block("endif")
        f.condbr(self.known[value.args[0]], inside, after)
        f.at(inside)
        self.region(value.regions[0])
        f.br(after)
        f.blocks.append(f.blocks.pop(f.blocks.index(after)))
        f.at(after)

    def _plain(self, v: Value) -> ir.Value | None:
        handler: Callable[[Value], ir.Value | None] | None = getattr(self, f"on_{v.op}", None)
        if handler is not None:
            return handler(v)
        args = [self.known[a] for a in v.args]
        f = self.f
        if v.op in _PLAIN:
            return f.binary(v.op, args[0], args[1])
        if v.op in _INTRINSIC_BINARY:
            return f.intrinsic(f"llvm.{_INTRINSIC_BINARY[v.op]}", args[0].type, args)
        if v.op in _INTRINSIC_UNARY:
            return f.unary_intrinsic(v.op, args[0])
        if v.op == "fneg":
            return f.fneg(args[0])
        if v.op in ("fptosi", "fptoui"):
            kinds = [self.type_of(v), args[0].type]
            return f.intrinsic(f"llvm.{v.op}.sat", kinds[0], args, suffix=kinds)
        if v.op in _CAST_OPS:
            return f.cast(_CASTS.get(v.op, v.op), args[0], self.type_of(v))
        function: Callable[..., ir.Value] = getattr(maths, v.op)
        return function(self.maths, *args)

    # --- one method for each instruction with a form of its own ----------------------------------

    def on_const(self, v: Value) -> ir.Value:
        return self.f.const(self.type_of(v), float(v.attr) if v.kind[0] == "f" else int(v.attr))

    def on_iota(self, v: Value) -> ir.Value:
        start, step = v.attr
        return self.f.const_vector(SCALARS[v.kind], [start + step * i for i in range(v.lanes)])

    def on_argument(self, v: Value) -> ir.Value:
        return self.arguments[v.attr]

    def on_scratch(self, v: Value) -> ir.Value:
        return self.f.alloca(t.i8, v.attr[1], align=64)

    def on_grid_index(self, v: Value) -> ir.Value:
        assert self.grid is not None
        return self.grid

    def on_result(self, v: Value) -> ir.Value:
        number: int = v.attr
        return self.results[v.args[0]][number]

    def on_splat(self, v: Value) -> ir.Value:
        return self.f.splat(self.known[v.args[0]], v.lanes)

    def on_fma(self, v: Value) -> ir.Value:
        a, b, c = (self.known[a] for a in v.args)
        return self.f.fma(a, b, c)

    def on_icmp(self, v: Value) -> ir.Value:
        a, b = (self.known[a] for a in v.args)
        return self.f.icmp(v.attr, a, b)

    def on_fcmp(self, v: Value) -> ir.Value:
        a, b = (self.known[a] for a in v.args)
        return self.f.fcmp(v.attr, a, b)

    def on_sqrt(self, v: Value) -> ir.Value:
        return self.maths.sqrt(self.known[v.args[0]])

    def on_select(self, v: Value) -> ir.Value:
        condition, a, b = (self.known[a] for a in v.args)
        return self.f.select(condition, a, b)

    def on_extract(self, v: Value) -> ir.Value:
        return self.f.extract(self.known[v.args[0]], v.attr)

    def on_insert(self, v: Value) -> ir.Value:
        x, scalar = (self.known[a] for a in v.args)
        return self.f.insert(x, scalar, v.attr)

    def on_shuffle(self, v: Value) -> ir.Value:
        a, b = (self.known[a] for a in v.args)
        return self.f.shuffle(a, b, v.attr)

    def binary(self, op: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """What folds partial results of a reduction."""
        if op in _INTRINSIC_BINARY:
            return self.f.intrinsic(f"llvm.{_INTRINSIC_BINARY[op]}", a.type, [a, b])
        return self.f.binary(op, a, b)

    def on_combine(self, v: Value) -> ir.Value:
        """A fixed tree: the upper half of the lanes onto the lower."""
        f, x = self.f, self.known[v.args[0]]
        lanes = v.args[0].lanes
        while lanes > 1:
            lanes //= 2
            low = f.shuffle(x, x, range(lanes))
            x = self.binary(v.attr, low, f.shuffle(x, x, range(lanes, 2 * lanes)))
        return f.extract(x, 0)

    def on_address(self, v: Value) -> ir.Value:
        base, index = (self.known[a] for a in v.args)
        element = {1: t.i8, 2: t.i16, 4: t.i32, 8: t.i64}[v.attr]
        # not inbounds: a masked access may form an address it does not use
        return self.f.gep(base, index, element, inbounds=False)

    def on_offset(self, v: Value) -> ir.Value:
        base = self.known[v.args[0]]
        if not base.type.lanes:
            return self.f.gep(base, v.attr, t.i8, inbounds=False)
        index = self.f.const(t.vector(t.i64, base.type.lanes), v.attr)
        return self.f.gep(base, index, t.i8, inbounds=False)

    def on_load(self, v: Value) -> ir.Value:
        return self.f.load(self.type_of(v), self.known[v.args[0]], align=v.attr[0])

    def on_masked_load(self, v: Value) -> ir.Value:
        address, mask = (self.known[a] for a in v.args)
        zero = self.f.const(self.type_of(v), 0)
        return self.f.masked_load(self.type_of(v), address, mask, zero, align=v.attr)

    def on_gather(self, v: Value) -> ir.Value:
        addresses, mask = (self.known[a] for a in v.args)
        type_ = self.type_of(v)
        name = f"llvm.masked.gather.{type_.mangled}.{addresses.type.mangled}"
        zero = self.f.const(type_, 0)
        self.f.module.declare(name, type_, [addresses.type, mask.type, type_])
        where = f"{addresses.type} align {v.attr} {addresses.text}"
        return self.f.emit(type_, f"call {type_} @{name}({where}, {mask.typed}, {zero.typed})")

    def on_store(self, v: Value) -> ir.Value:
        value, address = (self.known[a] for a in v.args)
        self.f.store(value, address, align=v.attr[0], nontemporal=v.attr[1])
        return value

    def on_masked_store(self, v: Value) -> ir.Value:
        value, address, mask = (self.known[a] for a in v.args)
        self.f.masked_store(value, address, mask, align=v.attr)
        return value

    def on_scatter(self, v: Value) -> ir.Value:
        value, addresses, mask = (self.known[a] for a in v.args)
        name = f"llvm.masked.scatter.{value.type.mangled}.{addresses.type.mangled}"
        self.f.module.declare(name, t.void, [value.type, addresses.type, mask.type])
        where = f"{addresses.type} align {v.attr} {addresses.text}"
        self.f.line(f"call void @{name}({value.typed}, {where}, {mask.typed})")
        return value

    def on_fence(self, v: Value) -> None:
        """Nothing, where one thread runs a block."""

    def on_prefetch(self, v: Value) -> None:
        address = self.known[v.args[0]]
        name = "llvm.prefetch.p0"
        self.f.module.declare(name, t.void, [t.ptr, t.i32, t.i32, t.i32])
        self.f.line(f"call void @{name}({address.typed}, i32 0, i32 3, i32 1)")


_CAST_OPS = frozenset(["sext", "zext", "itrunc", "fptrunc", "fpext", "sitofp", "uitofp", "bitcast"])
