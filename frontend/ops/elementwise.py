"""Operations on each element of one tensor, and the common activations made of them.

Functions of real numbers give floats: integers and bool become float32, fp8 is computed in float32.
Outside a function's domain the result is NaN, as IEEE 754 and NumPy have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from frontend import dtype as dt
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import common as c
from rawgpu.errors import DTypeError, OperationError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Method = Callable[["Tensor"], "Tensor"]


def _named(method: Method, name: str, doc: str) -> Method:
    method.__name__ = method.__qualname__ = name
    method.__doc__ = doc
    return method


def _function(op: Op, doc: str) -> Method:
    """A function of real numbers that is one graph operation."""

    def method(x: Tensor) -> Tensor:
        return x._derive(g.unary(op, c.to_float(x.node)))

    return _named(method, op.name.lower(), doc)


def _rounding(op: Op, doc: str) -> Method:
    """Floats to whole floats; integers and bool are whole already."""

    def method(x: Tensor) -> Tensor:
        node = c.widen_fp8(x.node)
        return x._derive(g.unary(op, node) if node.dtype.is_float else node)

    return _named(method, op.name.lower(), doc)


sqrt = _function(Op.SQRT, "Square root, correctly rounded.")
exp = _function(Op.EXP, "e ** x.")
exp2 = _function(Op.EXP2, "2 ** x.")
expm1 = _function(Op.EXPM1, "exp(x) - 1, exact near 0.")
log = _function(Op.LOG, "Natural logarithm; log(0) is -inf.")
log2 = _function(Op.LOG2, "Logarithm to base 2.")
log10 = _function(Op.LOG10, "Logarithm to base 10.")
log1p = _function(Op.LOG1P, "log(1 + x), exact near 0.")
sin = _function(Op.SIN, "Sine of radians, of any size.")
cos = _function(Op.COS, "Cosine of radians, of any size.")
tan = _function(Op.TAN, "Tangent of radians.")
asin = _function(Op.ASIN, "Arcsine, in radians.")
acos = _function(Op.ACOS, "Arccosine, in radians.")
atan = _function(Op.ATAN, "Arctangent, in radians.")
sinh = _function(Op.SINH, "Hyperbolic sine.")
cosh = _function(Op.COSH, "Hyperbolic cosine.")
tanh = _function(Op.TANH, "Hyperbolic tangent.")
asinh = _function(Op.ASINH, "Inverse hyperbolic sine.")
acosh = _function(Op.ACOSH, "Inverse hyperbolic cosine.")
atanh = _function(Op.ATANH, "Inverse hyperbolic tangent.")
erf = _function(Op.ERF, "The error function.")

floor = _rounding(Op.FLOOR, "The largest whole number not above x, in x's dtype.")
ceil = _rounding(Op.CEIL, "The smallest whole number not below x, in x's dtype.")
trunc = _rounding(Op.TRUNC, "x without its fraction, in x's dtype.")
round_ = _rounding(Op.ROUND, "The nearest whole number, halves to even, in x's dtype.")


def positive(x: Tensor) -> Tensor:
    """X itself."""
    return x


def negative(x: Tensor) -> Tensor:
    """-x; unsigned integers wrap. Raises DTypeError for bool."""
    node = c.widen_fp8(x.node)
    if node.dtype is dt.bool_:
        raise DTypeError("negative: not defined for bool", hint="logical_not, or cast first")
    return x._derive(g.unary(Op.NEG, node))


def absolute(x: Tensor) -> Tensor:
    """|x|; the lowest integer wraps to itself."""
    node = c.widen_fp8(x.node)
    return x._derive(g.unary(Op.ABS, node) if node.dtype.is_signed else node)


def bitwise_invert(x: Tensor) -> Tensor:
    """~x of integers, not of bool. Raises DTypeError for floats."""
    if x.dtype.is_float:
        raise DTypeError(f"bitwise_invert: takes integers and bool, not {x.dtype}")
    return x._derive(g.unary(Op.NOT, x.node))


def logical_not(x: Tensor) -> Tensor:
    """True where x is zero."""
    return x._derive(g.unary(Op.NOT, g.cast(x.node, dt.bool_)))


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 in x's dtype; NaN stays NaN. Raises DTypeError for bool."""
    node = c.widen_fp8(x.node)
    if node.dtype is dt.bool_:
        raise DTypeError("sign: not defined for bool")
    return x._derive(sign_of(node))


def sign_of(node: Node) -> Node:
    zero, one = c.like(0, node), c.like(1, node)
    out = g.where(g.binary(Op.LT, zero, node), one, node)
    if node.dtype.is_signed:
        out = g.where(g.binary(Op.LT, node, zero), c.like(-1, node), out)
    return out


def signbit(x: Tensor) -> Tensor:
    """True where the sign is minus, which -0.0 and some NaNs have."""
    node = c.widen_fp8(x.node)
    if node.dtype.is_float:
        node = g.bitcast(node, dt.BY_NAME[f"int{node.dtype.bits}"])
    if not node.dtype.is_signed:
        return x._derive(c.full(False, node.shape, dt.bool_))
    return x._derive(g.binary(Op.LT, node, c.like(0, node)))


def isnan(x: Tensor) -> Tensor:
    """True where x is NaN."""
    node = c.widen_fp8(x.node)
    return x._derive(g.binary(Op.NE, node, node))


def isinf(x: Tensor) -> Tensor:
    """True where x is an infinity."""
    node = c.to_float(x.node)
    return x._derive(g.binary(Op.EQ, g.unary(Op.ABS, node), c.like(math.inf, node)))


def isfinite(x: Tensor) -> Tensor:
    """True where x is neither NaN nor an infinity."""
    node = c.to_float(x.node)
    return x._derive(g.binary(Op.LT, g.unary(Op.ABS, node), c.like(math.inf, node)))


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN replaced by `nan`, the infinities by the largest finite values or what is given."""
    node = c.widen_fp8(x.node)
    if not node.dtype.is_float:
        return x
    high = largest_finite(node.dtype)
    nan = c.real("nan_to_num", "nan", nan)
    above = c.like(high if posinf is None else c.real("nan_to_num", "posinf", posinf), node)
    below = c.like(-high if neginf is None else c.real("nan_to_num", "neginf", neginf), node)
    out = g.where(g.binary(Op.NE, node, node), c.like(nan, node), node)
    out = g.where(g.binary(Op.EQ, node, c.like(math.inf, node)), above, out)
    return x._derive(g.where(g.binary(Op.EQ, node, c.like(-math.inf, node)), below, out))


def largest_finite(dtype: DType) -> float:
    exponent, digits = {
        "float16": (16, 11),
        "bfloat16": (128, 8),
        "float32": (128, 24),
        "float64": (1024, 53),
    }[dtype.name]
    return (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (exponent - 1)


def square(x: Tensor) -> Tensor:
    """X * x."""
    return x * x


def reciprocal(x: Tensor) -> Tensor:
    """1 / x as a float."""
    node = c.to_float(x.node)
    return x._derive(g.binary(Op.DIV, c.like(1.0, node), node))


def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    node = c.to_float(x.node)
    return x._derive(g.binary(Op.DIV, c.like(1.0, node), g.unary(Op.SQRT, node)))


# -- activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0); its derivative at 0 is 0."""
    node = c.widen_fp8(x.node)
    zero = c.like(0, node)
    if node.dtype.is_float:
        # not MAXIMUM, whose derivative at the tie is a half; NaN < 0 is false, so NaN stays
        return x._derive(g.where(g.binary(Op.LE, node, zero), zero, node))
    return x._derive(g.binary(Op.MAXIMUM, node, zero)) if node.dtype.is_signed else x


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), which does not overflow: exp(-x) to inf gives 0."""
    node = c.to_float(x.node)
    one = c.like(1.0, node)
    lower = g.unary(Op.EXP, g.unary(Op.NEG, node))
    return x._derive(g.binary(Op.DIV, one, g.binary(Op.ADD, one, lower)))


def silu(x: Tensor) -> Tensor:
    """X * sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return x.logaddexp(0.0)


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    return -softplus(-x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution's Φ, exact by erf.

    "tanh" takes the usual approximation.
    """
    if not isinstance(approximate, str):
        raise OperationError(f"gelu: approximate is text, not {c.shown(approximate)}")
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1.0)
    if approximate != "none":
        raise OperationError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1.0)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """X where positive, negative_slope * x elsewhere."""
    return (x > 0).where(x, x * negative_slope)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """X where positive, alpha * (exp(x) - 1) elsewhere."""
    # the argument is kept below 0 so that the unused branch has no infinite derivative
    return (x > 0).where(x, x.minimum(0.0).expm1() * alpha)


def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """X limited to [low, high]; its derivative at both is 0."""
    wide = x._derive(c.widen_fp8(x.node))
    return (wide <= low).where(low, (wide >= high).where(high, wide))
