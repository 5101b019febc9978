"""Operations on two tensors: arithmetic, comparison, bits and logic, and `where`.

Numeric rules: integers wrap; integer division and remainder by zero give 0, and the lowest integer
divided by -1 wraps to itself, as NumPy computes them; floor division and remainder round to minus
infinity for integers and floats alike; `int / int` is float32; a shift by the width or more gives 0
(-1 for a negative number shifted right). bool behaves as in NumPy: `+` is or, `*` is and, `-` is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import common as c
from frontend.ops.common import Operand, Scalar
from rawgpu.errors import DTypeError, OperationError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def operands(name: str, x: Tensor, y: Operand) -> tuple[Node, Node, Tensor]:
    """Both sides with a common dtype and shape, and the second as a tensor."""
    a = x.node
    if type(y) is type(x):
        b = y.node
        if a.dtype is b.dtype and a.shape == b.shape and x.device == y.device:
            if a.dtype not in dt.FP8:
                return a, b, y
            return c.widen_fp8(a), c.widen_fp8(b), y
    elif isinstance(y, (bool, int, float)):
        a = c.widen_fp8(a)
        b = c.scalar(name, y, a.dtype, a.shape)
        return g.cast(a, b.dtype), b, x
    other = c.as_tensor(y, x, name)
    c.same_device(name, x, other)
    a, b = c.widen_fp8(a), c.widen_fp8(other.node)
    dtype = common_dtype(name, a.dtype, b.dtype)
    shape = c.broadcast_shapes(name, a.shape, b.shape)
    a, b = c.broadcast_to(g.cast(a, dtype), shape), c.broadcast_to(g.cast(b, dtype), shape)
    return a, b, other


def common_dtype(name: str, a: DType, b: DType) -> DType:
    try:
        return dt.promote(a, b)
    except DTypeError as error:
        raise DTypeError(f"{name}: {error.message}", hint=error.hint) from None


def add(x: Tensor, y: Operand) -> Tensor:
    """x + y, broadcast and promoted."""
    a, b, other = operands("add", x, y)
    return x._derive(g.binary(Op.OR if a.dtype is dt.bool_ else Op.ADD, a, b), other)


def subtract(x: Tensor, y: Operand) -> Tensor:
    """x - y. Raises DTypeError for two bools."""
    return _subtract(*operands("subtract", x, y), x)


def rsubtract(x: Tensor, y: Operand) -> Tensor:
    """y - x."""
    a, b, other = operands("subtract", x, y)
    return _subtract(b, a, other, x)


def _subtract(a: Node, b: Node, other: Tensor, x: Tensor) -> Tensor:
    if a.dtype is dt.bool_:
        raise DTypeError("subtract: not defined for bool", hint="logical_xor, or cast first")
    return x._derive(g.binary(Op.SUB, a, b), other)


def multiply(x: Tensor, y: Operand) -> Tensor:
    """x * y, broadcast and promoted."""
    a, b, other = operands("multiply", x, y)
    return x._derive(g.binary(Op.AND if a.dtype is dt.bool_ else Op.MUL, a, b), other)


def divide(x: Tensor, y: Operand) -> Tensor:
    """x / y as floats; integers and bool become float32."""
    a, b, other = operands("divide", x, y)
    return x._derive(g.binary(Op.DIV, c.to_float(a), c.to_float(b)), other)


def rdivide(x: Tensor, y: Operand) -> Tensor:
    """y / x as floats."""
    a, b, other = operands("divide", x, y)
    return x._derive(g.binary(Op.DIV, c.to_float(b), c.to_float(a)), other)


def _plain(
    op: Op, name: str, doc: str, *, swap: bool = False
) -> Callable[[Tensor, Operand], Tensor]:
    """A method that is one graph operation; bool is computed as int8, as NumPy does."""

    def method(x: Tensor, y: Operand) -> Tensor:
        a, b, other = operands(name, x, y)
        if a.dtype is dt.bool_:
            a, b = g.cast(a, dt.int8), g.cast(b, dt.int8)
        return x._derive(g.binary(op, b, a) if swap else g.binary(op, a, b), other)

    return _named(method, name, doc)


def _floats(op: Op, name: str, doc: str) -> Callable[[Tensor, Operand], Tensor]:
    """A method that is one graph operation on floats; integers become float32."""

    def method(x: Tensor, y: Operand) -> Tensor:
        a, b, other = operands(name, x, y)
        return x._derive(g.binary(op, c.to_float(a), c.to_float(b)), other)

    return _named(method, name, doc)


def _named(
    method: Callable[[Tensor, Operand], Tensor], name: str, doc: str
) -> Callable[[Tensor, Operand], Tensor]:
    method.__name__ = method.__qualname__ = name
    method.__doc__ = doc
    return method


floor_divide = _plain(Op.FLOORDIV, "floor_divide", "floor(x / y) in the common dtype; x // 0 is 0.")
rfloor_divide = _plain(Op.FLOORDIV, "floor_divide", "floor(y / x).", swap=True)
remainder = _plain(Op.MOD, "remainder", "x - y*floor(x/y), of y's sign; an integer's x % 0 is 0.")
rremainder = _plain(Op.MOD, "remainder", "y - x*floor(y/x).", swap=True)
atan2 = _floats(Op.ATAN2, "atan2", "The angle of the point (y, x), where self is the ordinate.")
copysign = _floats(Op.COPYSIGN, "copysign", "The magnitude of x with the sign of y.")


def fmod(x: Tensor, y: Operand) -> Tensor:
    """x - y*trunc(x/y), of x's sign. In integers exact, and 0 where y is 0."""
    a, b, other = operands("fmod", x, y)
    if a.dtype.is_float:
        return x._derive(g.binary(Op.FMOD, a, b), other)
    if a.dtype is dt.bool_:
        a, b = g.cast(a, dt.int8), g.cast(b, dt.int8)
    rest = g.binary(Op.MOD, a, b)
    if not a.dtype.is_signed:
        return x._derive(rest, other)
    zero = c.like(0, a)  # the remainder has y's sign: one y less has x's
    apart = g.binary(Op.NE, g.binary(Op.LT, rest, zero), g.binary(Op.LT, a, zero))
    apart = g.binary(Op.AND, apart, g.binary(Op.NE, rest, zero))
    return x._derive(g.where(apart, g.binary(Op.SUB, rest, b), rest), other)


def _extreme(op: Op, on_bool: Op, name: str, doc: str) -> Callable[[Tensor, Operand], Tensor]:
    def method(x: Tensor, y: Operand) -> Tensor:
        a, b, other = operands(name, x, y)
        return x._derive(g.binary(on_bool if a.dtype is dt.bool_ else op, a, b), other)

    return _named(method, name, doc)


maximum = _extreme(Op.MAXIMUM, Op.OR, "maximum", "The larger of each pair; NaN if either is NaN.")
minimum = _extreme(Op.MINIMUM, Op.AND, "minimum", "The smaller of each pair; NaN if either is NaN.")


def hypot(x: Tensor, y: Operand) -> Tensor:
    """sqrt(x² + y²) without overflow on the way."""
    a, b, other = operands("hypot", x, y)
    a, b = g.unary(Op.ABS, c.to_float(a)), g.unary(Op.ABS, c.to_float(b))
    large, small = g.binary(Op.MAXIMUM, a, b), g.binary(Op.MINIMUM, a, b)
    infinite = g.binary(Op.OR, _is(a, float("inf")), _is(b, float("inf")))  # NaN or not
    large = g.where(infinite, c.like(float("inf"), large), large)
    plain = g.binary(Op.OR, _is(large, 0.0), infinite)
    ratio = g.binary(Op.DIV, small, g.where(plain, c.like(1.0, large), large))
    one = c.like(1.0, ratio)
    root = g.unary(Op.SQRT, g.binary(Op.ADD, one, g.binary(Op.MUL, ratio, ratio)))
    return x._derive(g.where(plain, large, g.binary(Op.MUL, large, root)), other)


def logaddexp(x: Tensor, y: Operand) -> Tensor:
    """log(exp(x) + exp(y)) without overflow on the way."""
    a, b, other = operands("logaddexp", x, y)
    a, b = c.to_float(a), c.to_float(b)
    large, small = g.binary(Op.MAXIMUM, a, b), g.binary(Op.MINIMUM, a, b)
    # equal infinities have no difference
    gap = g.where(g.binary(Op.EQ, a, b), c.like(0.0, a), g.binary(Op.SUB, small, large))
    return x._derive(g.binary(Op.ADD, large, g.unary(Op.LOG1P, g.unary(Op.EXP, gap))), other)


def _is(node: Node, value: float) -> Node:
    return g.binary(Op.EQ, node, c.like(value, node))


# -- powers


def power(x: Tensor, y: Operand) -> Tensor:
    """x ** y. Integers stay integers and wrap.

    A negative exponent of an integer is refused when it is a Python number; in a tensor it gives
    the truncated quotient 1 / x**-y, with 1 / 0 as 0. Small whole exponents of floats are computed
    by multiplication.
    """
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        a = c.widen_fp8(x.node)
        whole = abs(y) <= 4 and float(y).is_integer()
        if a.dtype.is_float and whole:
            return x._derive(_whole_power(a, int(y)))
        if a.dtype.is_integer and isinstance(y, int):
            if y < 0:
                raise OperationError(
                    f"pow: {a.dtype} to the negative power {c.shown(y)} is no integer"
                )
            if y >> 64:
                raise OperationError(f"pow: the exponent, {c.shown(y)}, is beyond 64 bits")
            return x._derive(_whole_power(a, y))
    a, b, other = operands("pow", x, y)
    return x._derive(_power(a, b), other)


def rpower(x: Tensor, y: Operand) -> Tensor:
    """Y ** x."""
    a, b, other = operands("pow", x, y)
    return x._derive(_power(b, a), other)


def _power(base: Node, exponent: Node) -> Node:
    if base.dtype.is_float:
        return g.binary(Op.POW, base, exponent)
    if base.dtype is dt.bool_:
        base, exponent = g.cast(base, dt.int8), g.cast(exponent, dt.int8)
    return _integer_power(base, exponent)


def _whole_power(base: Node, exponent: int) -> Node:
    """By repeated squaring, for an exponent known now."""
    if exponent < 0:
        one = c.like(1.0, base)
        return g.binary(Op.DIV, one, _whole_power(base, -exponent))
    result: Node | None = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else g.binary(Op.MUL, result, square)
        exponent >>= 1
        if exponent:
            square = g.binary(Op.MUL, square, square)
    return c.like(1, base) if result is None else result


def _integer_power(base: Node, exponent: Node) -> Node:
    zero, one = c.like(0, base), c.like(1, base)
    result, square = one, base
    bits = base.dtype.bits - (base.dtype.kind == "i")
    for bit in range(bits):
        here = g.binary(Op.AND, exponent, c.like(1 << bit, exponent))
        result = g.where(g.binary(Op.NE, here, zero), g.binary(Op.MUL, result, square), result)
        square = g.binary(Op.MUL, square, square)
    if base.dtype.kind == "u":
        return result
    # 1/x**n is 0 unless x is 1 or -1, where x**n is its own inverse; -n has the parity of n
    odd = g.binary(Op.NE, g.binary(Op.AND, exponent, one), zero)
    signs = g.where(odd, base, one)
    unit = g.binary(Op.OR, g.binary(Op.EQ, base, one), g.binary(Op.EQ, base, c.like(-1, base)))
    return g.where(g.binary(Op.LT, exponent, zero), g.where(unit, signs, zero), result)


# -- in place: x takes another value of its own shape and dtype


def iadd(x: Tensor, y: Operand) -> Tensor:
    """X += y."""
    return x._become(add(x, y), "+=")


def isubtract(x: Tensor, y: Operand) -> Tensor:
    """X -= y."""
    return x._become(subtract(x, y), "-=")


def imultiply(x: Tensor, y: Operand) -> Tensor:
    """X *= y."""
    return x._become(multiply(x, y), "*=")


def idivide(x: Tensor, y: Operand) -> Tensor:
    """X /= y."""
    return x._become(divide(x, y), "/=")


# -- comparisons


def compare_operands(name: str, x: Tensor, y: Operand) -> tuple[Node, Node, Tensor]:
    """As `operands`, but a Python integer outside an integer dtype is compared, not refused."""
    if (
        isinstance(y, int)
        and not isinstance(y, bool)
        and x.dtype.is_integer
        and not c.fits(y, x.dtype)
    ):
        a = x.node  # every element is on one side of y
        return c.like(0, g.cast(a, dt.int8)), c.full(1 if y > 0 else -1, a.shape, dt.int8), x
    return operands(name, x, y)


def _comparison(
    op: Op, name: str, doc: str, *, swap: bool = False
) -> Callable[[Tensor, Operand], Tensor]:
    ordered = op in (Op.LT, Op.LE)

    def method(x: Tensor, y: Operand) -> Tensor:
        a, b, other = compare_operands(name, x, y)
        if ordered and a.dtype is dt.bool_:
            a, b = g.cast(a, dt.uint8), g.cast(b, dt.uint8)
        return x._derive(g.binary(op, b, a) if swap else g.binary(op, a, b), other)

    return _named(method, name, doc)


equal = _comparison(Op.EQ, "equal", "x == y elementwise, as bool; NaN equals nothing.")
not_equal = _comparison(Op.NE, "not_equal", "x != y elementwise, as bool.")
less = _comparison(Op.LT, "less", "x < y elementwise, as bool.")
less_equal = _comparison(Op.LE, "less_equal", "x <= y elementwise, as bool.")
greater = _comparison(Op.LT, "greater", "x > y elementwise, as bool.", swap=True)
greater_equal = _comparison(Op.LE, "greater_equal", "x >= y elementwise, as bool.", swap=True)


def isclose(
    x: Tensor, y: Operand, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False
) -> Tensor:
    """|x - y| <= atol + rtol*|y| elementwise, or equal.

    NaN is close to NaN only with `equal_nan`.
    """
    rtol, atol = c.real("isclose", "rtol", rtol), c.real("isclose", "atol", atol)
    a, b, other = operands("isclose", x, y)
    a, b = c.to_float(a), c.to_float(b)
    far = g.unary(Op.ABS, g.binary(Op.SUB, a, b))
    bound = g.binary(Op.MUL, g.unary(Op.ABS, b), c.like(rtol, b))
    bound = g.binary(Op.ADD, bound, c.like(atol, b))
    finite = g.binary(Op.LT, g.unary(Op.ABS, b), c.like(float("inf"), b))
    near = g.binary(Op.AND, g.binary(Op.LE, far, bound), finite)
    near = g.binary(Op.OR, near, g.binary(Op.EQ, a, b))
    if c.flag("isclose", "equal_nan", equal_nan):
        both = g.binary(Op.AND, g.binary(Op.NE, a, a), g.binary(Op.NE, b, b))
        near = g.binary(Op.OR, near, both)
    return x._derive(near, other)


# -- bits and logic


def _bits(
    op: Op, name: str, doc: str, *, swap: bool = False
) -> Callable[[Tensor, Operand], Tensor]:
    shift = op in (Op.SHL, Op.SHR)

    def method(x: Tensor, y: Operand) -> Tensor:
        a, b, other = operands(name, x, y)
        if a.dtype.is_float:
            raise DTypeError(f"{name}: takes integers and bool, not {a.dtype}")
        if shift and a.dtype is dt.bool_:
            a, b = g.cast(a, dt.int8), g.cast(b, dt.int8)
        return x._derive(g.binary(op, b, a) if swap else g.binary(op, a, b), other)

    return _named(method, name, doc)


bitwise_and = _bits(Op.AND, "bitwise_and", "x & y of integers or bools.")
bitwise_or = _bits(Op.OR, "bitwise_or", "x | y of integers or bools.")
bitwise_xor = _bits(Op.XOR, "bitwise_xor", "x ^ y of integers or bools.")
bitwise_left_shift = _bits(
    Op.SHL, "bitwise_left_shift", "x << y; y at the width or beyond gives 0."
)
bitwise_right_shift = _bits(Op.SHR, "bitwise_right_shift", "x >> y, the sign kept.")
rleft_shift = _bits(Op.SHL, "bitwise_left_shift", "y << x.", swap=True)
rright_shift = _bits(Op.SHR, "bitwise_right_shift", "y >> x.", swap=True)


def _logical(op: Op, name: str, doc: str) -> Callable[[Tensor, Operand], Tensor]:
    def method(x: Tensor, y: Operand) -> Tensor:
        other = c.as_tensor(y, x, name)
        c.same_device(name, x, other)
        shape = c.broadcast_shapes(name, x.shape, other.shape)
        a, b = g.cast(x.node, dt.bool_), g.cast(other.node, dt.bool_)
        return x._derive(g.binary(op, c.broadcast_to(a, shape), c.broadcast_to(b, shape)), other)

    return _named(method, name, doc)


logical_and = _logical(Op.AND, "logical_and", "Both differ from zero, as bool.")
logical_or = _logical(Op.OR, "logical_or", "Either differs from zero, as bool.")
logical_xor = _logical(Op.XOR, "logical_xor", "Exactly one differs from zero, as bool.")


# -- choice


def where(condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where `condition` holds, else y; all three broadcast, x and y promoted.

    Raises DTypeError unless `condition` is bool: a tensor, an array or one of Python's.
    """
    condition = _condition(condition, x, y)
    if condition.dtype is not dt.bool_:
        raise DTypeError(f"where: the condition is {condition.dtype}, not bool")
    a, b = _branches(condition, x, y)
    c.same_device("where", condition, a, b)
    dtype = common_dtype("where", a.dtype, b.dtype)
    shape = c.broadcast_shapes("where", condition.shape, a.shape, b.shape)
    parts = [c.broadcast_to(g.cast(t.node, dtype), shape) for t in (a, b)]
    node = g.where(c.broadcast_to(condition.node, shape), *parts)
    return condition._derive(node, a, b)


def _condition(condition: Operand, *others: Operand) -> Tensor:
    """The condition as a tensor where the other tensors are."""
    from frontend.tensor import Tensor

    if isinstance(condition, Tensor):
        return condition
    device = next((t.device for t in others if isinstance(t, Tensor)), None)
    return c.made("where", condition, device)


def _branches(condition: Tensor, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    """Both values as tensors; a Python number takes the dtype of the other if it can."""
    weak = (bool, int, float)
    if isinstance(x, weak) and isinstance(y, weak):
        dtype = dt.promote(_plain_kind(x), _plain_kind(y))
        new = condition._new
        device = condition.device
        first, second = (g.const(c.held("where", v, dtype), (), dtype) for v in (x, y))
        return new(first, device), new(second, device)
    if isinstance(x, weak):
        b = c.as_tensor(y, condition, "where")
        return b._new(c.scalar("where", x, b.dtype, ()), b.device), b
    a = c.as_tensor(x, condition, "where")
    if isinstance(y, weak):
        return a, a._new(c.scalar("where", y, a.dtype, ()), a.device)
    return a, c.as_tensor(y, condition, "where")


def _plain_kind(value: Scalar) -> DType:
    """The dtype that a Python number has by itself."""
    if isinstance(value, bool):
        return dt.bool_
    return dt.DEFAULT_INT if isinstance(value, int) else dt.DEFAULT_FLOAT


def masked_fill(x: Tensor, mask: Operand, value: Scalar) -> Tensor:
    """`value` where `mask` (bool, broadcast) holds, x elsewhere.

    The dtype of x and the number promoted.
    """
    return where(mask, value, x)


def clip(x: Tensor, low: Operand | None = None, high: Operand | None = None) -> Tensor:
    """x limited to [low, high], either of which may be None. NaN stays NaN, in a limit too.

    The derivative is x's at the limits themselves, and the limit's beyond.
    """
    out = x if low is None else _bounded(x, low, lower=True)
    return out if high is None else _bounded(out, high, lower=False)


def _bounded(x: Tensor, limit: Operand, *, lower: bool) -> Tensor:
    """Not MAXIMUM or MINIMUM, whose derivative at the tie is a half."""
    a, b, other = operands("clip", x, limit)
    if a.dtype is dt.bool_:
        return x._derive(g.binary(Op.OR if lower else Op.AND, a, b), other)
    inside = g.binary(Op.LE, b, a) if lower else g.binary(Op.LE, a, b)
    if a.dtype.is_float:
        inside = g.binary(Op.OR, inside, g.binary(Op.NE, a, a))
    return x._derive(g.where(inside, a, b), other)


def lerp(x: Tensor, end: Operand, weight: Operand) -> Tensor:
    """x + weight*(end - x)."""
    return add(x, multiply(subtract(c.as_tensor(end, x, "lerp"), x), weight))
