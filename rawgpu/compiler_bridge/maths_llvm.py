"""The elementary functions' operations as LLVM instructions, on scalars or vectors of any length.

`maths.exp(LlvmOps(function), x)` appends to the function's current block. A rare path, as for huge
angles, is a branch that is taken if any lane needs it: with `branches=False` a sine takes three
times as long, so leave it out only where control flow cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rawgpu.compiler_bridge.ops import scale_but_where, scale_by_multiplying
from rawgpu.compiler_bridge.text import Function, Value
from rawgpu.compiler_bridge.types import Type, f32, f64, i1, i32, i64, vector


class LlvmOps:
    """`Ops` that writes to the current block of `function`.

    `scalef`: the target has AVX-512's scalef for 512-bit vectors. `branches`: rare paths become
    branches (moving `function.current`); without them both ways are computed. `table_space`: the
    address space of constants: 0 on processors, 4 on AMD and NVIDIA GPUs.
    """

    def __init__(
        self,
        function: Function,
        *,
        scalef: bool = False,
        branches: bool = True,
        table_space: int = 0,
    ) -> None:
        self.function = function
        self.has_scalef = scalef
        self.branches = branches
        self.table_space = table_space

    def bits(self, x: Value) -> int:
        return x.type.bits

    def _float(self, type_: Type) -> Type:
        return type_.like(f32 if type_.bits == 32 else f64)

    def _int(self, type_: Type) -> Type:
        return type_.like(i32 if type_.bits == 32 else i64)

    def const(self, like: Value, number: float) -> Value:
        return self.function.const(self._float(like.type), number)

    def iconst(self, like: Value, number: int) -> Value:
        return self.function.const(self._int(like.type), number)

    def add(self, a: Value, b: Value) -> Value:
        return self.function.fadd(a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.function.fsub(a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.function.fmul(a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.function.fdiv(a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.function.fma(a, b, c)

    def sqrt(self, x: Value) -> Value:
        if self.has_scalef and self.branches and x.type.lanes == 16 and x.type.bits == 32:
            return self._sqrt_by_steps(x)
        return self.function.unary_intrinsic("sqrt", x)

    def _sqrt_by_steps(self, x: Value) -> Value:
        """The square root, correctly rounded, from an estimate that is good to 14 bits.

        `vsqrtps` of 512 bits takes 12 to 24 cycles, which nothing else fills; this takes 5. One
        step of Newton's doubles the bits of s = sqrt(x) and h = 1/(2 sqrt(x)); the last takes what
        s lacks from the exact x - s*s. Compared with `vsqrtps` on every float32 of [1, 4), which
        stands for all: the estimate scales with the exponent. Where x - s*s could be denormal, and
        at 0, infinity, NaN and below 0, the instruction is used.
        """
        f, type_ = self.function, x.type
        bits = self.to_bits(x)
        least, count = 27 << 23, 228 << 23  # from 2**-100 up to infinity
        unusual = self.invert(
            self.ult(self.isub(bits, self.iconst(bits, least)), self.iconst(bits, count))
        )
        name, mask = "llvm.x86.avx512.rsqrt14.ps.512", Type("int", 16)
        f.module.declare(name, type_, [type_, type_, mask])
        estimate = f.call(name, type_, [x, f.undef(type_), f.const(mask, -1)])
        s, h = self.mul(x, estimate), self.mul(estimate, self.const(x, 0.5))
        off = self.fma(self.neg(s), h, self.const(x, 0.5))
        s, h = self.fma(s, off, s), self.fma(h, off, h)
        root = self.fma(self.fma(self.neg(s), s, x), h, s)
        (result,) = self.where(unusual, lambda: (f.unary_intrinsic("sqrt", x),), (root,))
        return result

    def neg(self, x: Value) -> Value:
        return self.function.fneg(x)

    def abs(self, x: Value) -> Value:
        return self.function.unary_intrinsic("fabs", x)

    def copysign(self, x: Value, sign: Value) -> Value:
        return self.function.intrinsic("llvm.copysign", x.type, [x, sign])

    def floor(self, x: Value) -> Value:
        return self.function.unary_intrinsic("floor", x)

    def trunc(self, x: Value) -> Value:
        return self.function.unary_intrinsic("trunc", x)

    def roundeven(self, x: Value) -> Value:
        return self.function.unary_intrinsic("roundeven", x)

    def lt(self, a: Value, b: Value) -> Value:
        return self.function.fcmp("olt", a, b)

    def le(self, a: Value, b: Value) -> Value:
        return self.function.fcmp("ole", a, b)

    def eq(self, a: Value, b: Value) -> Value:
        return self.function.fcmp("oeq", a, b)

    def iadd(self, a: Value, b: Value) -> Value:
        return self.function.add(a, b)

    def isub(self, a: Value, b: Value) -> Value:
        return self.function.sub(a, b)

    def imul(self, a: Value, b: Value) -> Value:
        return self.function.mul(a, b)

    def iand(self, a: Value, b: Value) -> Value:
        return self.function.and_(a, b)

    def ior(self, a: Value, b: Value) -> Value:
        return self.function.or_(a, b)

    def ixor(self, a: Value, b: Value) -> Value:
        return self.function.xor(a, b)

    def shl(self, a: Value, count: int) -> Value:
        return self.function.shl(a, self.iconst(a, count))

    def lshr(self, a: Value, count: int) -> Value:
        return self.function.lshr(a, self.iconst(a, count))

    def ashr(self, a: Value, count: int) -> Value:
        return self.function.ashr(a, self.iconst(a, count))

    def shl_by(self, a: Value, count: Value) -> Value:
        return self.function.shl(a, count)

    def lshr_by(self, a: Value, count: Value) -> Value:
        return self.function.lshr(a, count)

    def ieq(self, a: Value, b: Value) -> Value:
        return self.function.icmp("eq", a, b)

    def ilt(self, a: Value, b: Value) -> Value:
        return self.function.icmp("slt", a, b)

    def ult(self, a: Value, b: Value) -> Value:
        return self.function.icmp("ult", a, b)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.function.select(condition, a, b)

    def both(self, a: Value, b: Value) -> Value:
        return self.function.and_(a, b)

    def either(self, a: Value, b: Value) -> Value:
        return self.function.or_(a, b)

    def invert(self, a: Value) -> Value:
        return self.function.xor(a, self.function.const(a.type, True))

    def to_bits(self, x: Value) -> Value:
        return self.function.bitcast(x, self._int(x.type))

    def from_bits(self, x: Value) -> Value:
        return self.function.bitcast(x, self._float(x.type))

    def to_int(self, x: Value) -> Value:
        return self.function.cast("fptosi", x, self._int(x.type))

    def to_float(self, x: Value) -> Value:
        return self.function.cast("sitofp", x, self._float(x.type))

    def widen(self, x: Value) -> Value:
        return self.function.cast("fpext", x, x.type.like(f64))

    def narrow(self, x: Value) -> Value:
        return self.function.cast("fptrunc", x, x.type.like(f32))

    def iwiden(self, x: Value) -> Value:
        return self.function.cast("zext", x, x.type.like(i64))

    def inarrow(self, x: Value) -> Value:
        return self.function.cast("trunc", x, x.type.like(i32))

    def gather(self, name: str, numbers: Sequence[float], index: Value) -> Value:
        f = self.function
        table = f.module.table(f"table.{name}", f64, numbers, space=self.table_space)
        address = f.gep(table, index, f64)
        lanes = index.type.lanes
        if not lanes:
            return f.load(f64, address)
        result = vector(f64, lanes)
        full = f"llvm.masked.gather.{result.mangled}.{address.type.mangled}"
        f.module.declare(full, result, [address.type, vector(i1, lanes), result])
        where = f"{address.type} align 8 {address.text}"
        every, nothing = f.const(vector(i1, lanes), True), f.undef(result)
        return f.emit(result, f"call {result} @{full}({where}, {every.typed}, {nothing.typed})")

    def scale(self, x: Value, power: Value) -> Value:
        if not self._scales(x):
            return scale_by_multiplying(self, x, power)
        f, short = self.function, "ps" if x.type.bits == 32 else "pd"
        name = f"llvm.x86.avx512.mask.scalef.{short}.512"
        mask = Type("int", x.type.lanes)
        f.module.declare(name, x.type, [x.type, x.type, x.type, mask, i32])
        rounding = f.const(i32, 4)  # the current mode
        args = [x, power, f.undef(x.type), f.const(mask, -1), rounding]
        return f.call(name, x.type, args)

    def scale_or_zero(self, x: Value, power: Value, nothing: Value) -> Value:
        if not self._scales(x):
            return scale_but_where(self, x, power, nothing)
        # one instruction, which does not compute in the lanes that it leaves out
        return self.function.select(nothing, self.const(x, 0.0), self.scale(x, power))

    def _scales(self, x: Value) -> bool:
        """Whether an instruction multiplies this by powers of two."""
        return self.has_scalef and x.type.bits * x.type.lanes == 512

    def any_lane(self, condition: Value) -> Value:
        """One i1: whether `condition` holds in some lane."""
        lanes = condition.type.lanes
        if not lanes:
            return condition
        f = self.function
        word = f.bitcast(condition, Type("int", lanes))  # kortest on AVX-512, movmsk before it
        return f.icmp("ne", word, f.const(word.type, 0))

    def where(
        self, condition: Value, rare: Callable[[], tuple[Value, ...]], usual: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        f = self.function
        if not self.branches:
            return self._blend(condition, rare(), usual)
        slow, join = f.block("rare"), f.block("join")
        source = f.current
        f.condbr(self.any_lane(condition), slow, join, self._unlikely)
        f.at(slow)
        mixed = self._blend(condition, rare(), usual)
        end = f.current
        f.br(join)
        f.at(join)
        return tuple(
            f.phi(a.type, (a, source), (b, end)) for a, b in zip(usual, mixed, strict=True)
        )

    def _blend(
        self, condition: Value, a: tuple[Value, ...], b: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        return tuple(self.function.select(condition, x, y) for x, y in zip(a, b, strict=True))

    def while_any(
        self,
        state: tuple[Value, ...],
        condition: Callable[[tuple[Value, ...]], Value],
        body: Callable[[tuple[Value, ...]], tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        f = self.function
        before = f.current
        head, inside, after = f.block("while"), f.block("body"), f.block("after")
        f.br(head)
        f.at(head)
        phis = [f.phi(value.type, (value, before)) for value in state]
        now: tuple[Value, ...] = tuple(phis)
        f.condbr(self.any_lane(condition(now)), inside, after)
        f.at(inside)
        for phi, value in zip(phis, body(now), strict=True):
            phi.add(value, f.current)
        f.br(head)
        f.at(after)
        return now

    @property
    def _unlikely(self) -> str:
        return f", !prof {self.function.module.unlikely}"
