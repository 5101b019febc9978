"""Instructions as LLVM IR for CPUs: `void kernel(ptr args, i64 begin, i64 end)`.

`args` points at 64-bit slots, one for each buffer; the body runs once for each grid block in the
half-open range. Elementary functions become our own polynomials (`rawgpu.compiler_bridge.maths`):
LLVM would leave calls to a C library that nobody links.
"""

from __future__ import annotations

from collections.abc import Callable

from frontend.instructions.ir import Region, Value
from rawgpu.compiler_bridge import maths
from rawgpu.compiler_bridge import text as ir
from rawgpu.compiler_bridge import types as t
from rawgpu.compiler_bridge.maths_llvm import LlvmOps
from rawgpu.compiler_bridge.target import Target

_SCALARS = {
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
_INTRINSIC_UNARY = frozenset(["fabs", "sqrt", "floor", "ceil", "trunc", "roundeven"])
_CASTS = {"itrunc": "trunc"}


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
    _Printer(module.function(name, params, attributes=attributes), target).kernel(body)
    return str(module)


class _Printer:
    def __init__(self, function: ir.Function, target: Target) -> None:
        self.f = function
        self.known: dict[Value, ir.Value] = {}
        self.maths = LlvmOps(function, scalef="avx512f" in target.enabled)
        self.arguments: dict[int, ir.Value] = {}
        self.results: dict[Value, list[ir.Value]] = {}
        self.grid: ir.Value | None = None

    def kernel(self, body: Region) -> None:
        f = self.f
        entry, loop, done = f.current, f.block("block"), f.block("done")
        self._load_arguments(body)
        f.condbr(f.icmp("slt", f.args[1], f.args[2]), loop, done)
        f.at(loop)
        grid = f.phi(t.i64, (f.args[1], entry))
        self.grid = grid
        self._region(body)
        following = f.add(grid, f.const(t.i64, 1), "nuw nsw")
        grid.add(following, f.current)
        f.condbr(f.icmp("slt", following, f.args[2]), loop, done)
        f.at(done)
        f.ret()

    def _load_arguments(self, region: Region) -> None:
        for value in region.values:
            if value.op == "argument":
                where = self.f.gep(self.f.args[0], value.attr, t.i64)
                self.arguments[value.attr] = self.f.load(t.ptr, where, align=8)
            for inner in value.regions:
                self._load_arguments(inner)

    def _region(self, region: Region) -> None:
        for value in region.values:
            if value.op == "loop":
                self._loop(value)
            elif value.op == "if":
                self._if(value)
            else:
                made = self._plain(value)
                if value.kind:
                    self.known[value] = made

    def _type(self, value: Value) -> t.Type:
        scalar = _SCALARS[value.kind]
        return scalar if value.lanes == 1 else t.vector(scalar, value.lanes)

    def _loop(self, value: Value) -> None:
        f, region = self.f, value.regions[0]
        start, stop, *carried = (self.known[a] for a in value.args)
        before, body, after = f.current, f.block("loop"), f.block("after")
        f.br(body)
        f.at(body)
        index = f.phi(t.i64, (start, before))
        self.known[region.arguments[0]] = index
        phis = []
        for argument, first in zip(region.arguments[1:], carried, strict=True):
            phis.append(f.phi(first.type, (first, before)))
            self.known[argument] = phis[-1]
        self._region(region)
        following = f.add(index, f.const(t.i64, value.attr), "nuw nsw")
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
        self._region(value.regions[0])
        f.br(after)
        f.blocks.append(f.blocks.pop(f.blocks.index(after)))
        f.at(after)

    def _plain(self, v: Value) -> ir.Value:
        handler = _HANDLERS.get(v.op)
        if handler is not None:
            return handler(self, v)
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
            kinds = [self._type(v), args[0].type]
            return f.intrinsic(f"llvm.{v.op}.sat", kinds[0], args, suffix=kinds)
        if v.op in _CAST_OPS:
            return f.cast(_CASTS.get(v.op, v.op), args[0], self._type(v))
        function: Callable[..., ir.Value] = getattr(maths, v.op)
        return function(self.maths, *args)

    # --- one method for each instruction with a form of its own ----------------------------------

    def _const(self, v: Value) -> ir.Value:
        return self.f.const(self._type(v), float(v.attr) if v.kind[0] == "f" else int(v.attr))

    def _iota(self, v: Value) -> ir.Value:
        start, step = v.attr
        return self.f.const_vector(_SCALARS[v.kind], [start + step * i for i in range(v.lanes)])

    def _argument(self, v: Value) -> ir.Value:
        return self.arguments[v.attr]

    def _scratch(self, v: Value) -> ir.Value:
        return self.f.alloca(t.i8, v.attr[1], align=64)

    def _grid_index(self, v: Value) -> ir.Value:
        assert self.grid is not None
        return self.grid

    def _result(self, v: Value) -> ir.Value:
        number: int = v.attr
        return self.results[v.args[0]][number]

    def _splat(self, v: Value) -> ir.Value:
        return self.f.splat(self.known[v.args[0]], v.lanes)

    def _fma(self, v: Value) -> ir.Value:
        a, b, c = (self.known[a] for a in v.args)
        return self.f.fma(a, b, c)

    def _compare(self, v: Value) -> ir.Value:
        a, b = (self.known[a] for a in v.args)
        return self.f.icmp(v.attr, a, b) if v.op == "icmp" else self.f.fcmp(v.attr, a, b)

    def _select(self, v: Value) -> ir.Value:
        condition, a, b = (self.known[a] for a in v.args)
        return self.f.select(condition, a, b)

    def _extract(self, v: Value) -> ir.Value:
        return self.f.extract(self.known[v.args[0]], v.attr)

    def _insert(self, v: Value) -> ir.Value:
        x, scalar = (self.known[a] for a in v.args)
        return self.f.insert(x, scalar, v.attr)

    def _shuffle(self, v: Value) -> ir.Value:
        a, b = (self.known[a] for a in v.args)
        return self.f.shuffle(a, b, v.attr)

    def _combine(self, v: Value) -> ir.Value:
        f, x = self.f, self.known[v.args[0]]
        lanes = v.args[0].lanes
        while lanes > 1:  # a fixed tree: the upper half onto the lower
            lanes //= 2
            low = f.shuffle(x, x, range(lanes))
            high = f.shuffle(x, x, range(lanes, 2 * lanes))
            if v.attr in _INTRINSIC_BINARY:
                x = f.intrinsic(f"llvm.{_INTRINSIC_BINARY[v.attr]}", low.type, [low, high])
            else:
                x = f.binary(v.attr, low, high)
        return f.extract(x, 0)

    def _address(self, v: Value) -> ir.Value:
        base, index = (self.known[a] for a in v.args)
        element = {1: t.i8, 2: t.i16, 4: t.i32, 8: t.i64}[v.attr]
        # not inbounds: a masked access may form an address it does not use
        return self.f.gep(base, index, element, inbounds=False)

    def _offset(self, v: Value) -> ir.Value:
        base = self.known[v.args[0]]
        if not base.type.lanes:
            return self.f.gep(base, v.attr, t.i8, inbounds=False)
        index = self.f.const(t.vector(t.i64, base.type.lanes), v.attr)
        return self.f.gep(base, index, t.i8, inbounds=False)

    def _load(self, v: Value) -> ir.Value:
        return self.f.load(self._type(v), self.known[v.args[0]], align=v.attr[0])

    def _masked_load(self, v: Value) -> ir.Value:
        address, mask = (self.known[a] for a in v.args)
        zero = self.f.const(self._type(v), 0)
        return self.f.masked_load(self._type(v), address, mask, zero, align=v.attr)

    def _gather(self, v: Value) -> ir.Value:
        addresses, mask = (self.known[a] for a in v.args)
        type_ = self._type(v)
        name = f"llvm.masked.gather.{type_.mangled}.{addresses.type.mangled}"
        zero = self.f.const(type_, 0)
        self.f.module.declare(name, type_, [addresses.type, mask.type, type_])
        where = f"{addresses.type} align {v.attr} {addresses.text}"
        return self.f.emit(type_, f"call {type_} @{name}({where}, {mask.typed}, {zero.typed})")

    def _store(self, v: Value) -> ir.Value:
        value, address = (self.known[a] for a in v.args)
        self.f.store(value, address, align=v.attr[0], nontemporal=v.attr[1])
        return value

    def _masked_store(self, v: Value) -> ir.Value:
        value, address, mask = (self.known[a] for a in v.args)
        self.f.masked_store(value, address, mask, align=v.attr)
        return value

    def _scatter(self, v: Value) -> ir.Value:
        value, addresses, mask = (self.known[a] for a in v.args)
        name = f"llvm.masked.scatter.{value.type.mangled}.{addresses.type.mangled}"
        self.f.module.declare(name, t.void, [value.type, addresses.type, mask.type])
        where = f"{addresses.type} align {v.attr} {addresses.text}"
        self.f.line(f"call void @{name}({value.typed}, {where}, {mask.typed})")
        return value

    def _prefetch(self, v: Value) -> ir.Value:
        address = self.known[v.args[0]]
        name = "llvm.prefetch.p0"
        self.f.module.declare(name, t.void, [t.ptr, t.i32, t.i32, t.i32])
        self.f.line(f"call void @{name}({address.typed}, i32 0, i32 3, i32 1)")
        return address


_CAST_OPS = frozenset(["sext", "zext", "itrunc", "fptrunc", "fpext", "sitofp", "uitofp", "bitcast"])
_HANDLERS: dict[str, Callable[[_Printer, Value], ir.Value]] = {
    "const": _Printer._const, "iota": _Printer._iota, "argument": _Printer._argument,
    "scratch": _Printer._scratch, "grid_index": _Printer._grid_index, "result": _Printer._result,
    "splat": _Printer._splat, "fma": _Printer._fma, "icmp": _Printer._compare,
    "fcmp": _Printer._compare, "select": _Printer._select, "extract": _Printer._extract,
    "insert": _Printer._insert, "shuffle": _Printer._shuffle, "combine": _Printer._combine,
    "address": _Printer._address, "offset": _Printer._offset, "load": _Printer._load,
    "masked_load": _Printer._masked_load, "gather": _Printer._gather, "store": _Printer._store,
    "masked_store": _Printer._masked_store, "scatter": _Printer._scatter,
    "prefetch": _Printer._prefetch,
}  # fmt: skip
