"""Elementary functions of float64: the error functions and the cube root. See `maths_f64.py`."""

from __future__ import annotations

from rawgpu.compiler_bridge.maths_f64 import exp_scaled
from rawgpu.compiler_bridge.ops import Ops, V, poly, two_product

ERF = (0.1283791670955126, -0.37612638903183904, 0.11283791670960576, -0.02686617064604513,
       0.005223977634072493, -0.0008548327531645966, 0.00012055352774103903,
       -1.4926177579449532e-05, 1.6471867898274965e-06, -1.6491030080074055e-07,
       1.589992401388553e-08, -1.8468838915608093e-09, 2.9724987312295885e-10,
       -3.5367818875431515e-11)  # fmt: skip
"""erf x / x - 1 in powers of x**2 on |x| <= 1, to 2**-56.3."""
ERFC = (1.2329951186255526, -0.1396211168405625, 0.015379652102613354, 0.06809705425469047,
        -0.10103906603603778, 0.09373283499845081, -0.06633036581737663, 0.0371675155353251,
        -0.016197734002110036, 0.0050319700034152, -0.0007577736571041444,
        -0.0001992568763159183, 0.00015062324814220834, -2.439838445238098e-05,
        -1.1226450032667918e-05, 5.707248248897213e-06, 3.0196050383157836e-07,
        -8.205687219869603e-07, 6.51436419188538e-08, 1.040890770157266e-07,
        -1.159291090165685e-08, -9.931643949218413e-09)  # fmt: skip
"""(1 + 2t) exp(t**2) erfc t in powers of (t - 4) / (t + 4) on 0.45 <= t <= 28, to 2**-54.6.

Source of the form: M. Shepherd and J. Laframboise, Mathematics of Computation 36 (1981).
"""


def _erf_small(ops: Ops[V], x: V) -> V:
    return ops.fma(x, poly(ops, ops.mul(x, x), ERF), x)


def _erfc_large(ops: Ops[V], t: V) -> V:
    """erfc t for 0.45 <= t <= 28."""
    four = ops.const(t, 4.0)
    q = ops.div(ops.sub(t, four), ops.add(t, four))
    two = ops.const(t, 2.0)
    scaled = ops.div(poly(ops, q, ERFC), ops.fma(two, t, ops.const(t, 1.0)))
    square, lost = two_product(ops, t, t)
    # exp(-700) keeps the product with `scaled` normal until the last step, which may round to a
    # denormal
    decay = exp_scaled(ops, ops.neg(square), 64.0, ops.neg(lost))
    return ops.mul(ops.mul(scaled, decay), ops.const(t, 2.0**-64))


def erf(ops: Ops[V], x: V) -> V:
    """The error function. 2 ulp."""
    t = ops.abs(x)
    near = ops.lt(t, ops.const(x, 0.85))
    top = ops.const(x, 6.0)  # beyond, 1 is the nearest float
    capped = ops.select(ops.lt(top, t), top, t)
    large = ops.sub(ops.const(x, 1.0), _erfc_large(ops, capped))
    return ops.select(near, _erf_small(ops, x), ops.copysign(large, x))


def erfc(ops: Ops[V], x: V) -> V:
    """1 - erf x, accurate where that is small. 4 ulp."""
    one, two = ops.const(x, 1.0), ops.const(x, 2.0)
    t = ops.abs(x)
    top = ops.const(x, 28.0)  # beyond, 0 is the nearest float
    tail = _erfc_large(ops, ops.select(ops.lt(top, t), top, t))
    far = ops.select(ops.lt(x, ops.const(x, 0.0)), ops.sub(two, tail), tail)
    return ops.select(ops.lt(t, ops.const(x, 0.5)), ops.sub(one, _erf_small(ops, x)), far)


def cbrt(ops: Ops[V], x: V) -> V:
    """Cube root. 1 ulp."""
    t = ops.abs(x)
    tiny = ops.lt(t, ops.const(x, 2.0**-1022))
    great = ops.lt(ops.const(x, 2.0**900), t)  # where the iteration would overflow
    one = ops.const(x, 1.0)
    factor = ops.select(tiny, ops.const(x, 2.0**54), one)
    factor = ops.select(great, ops.const(x, 2.0**-54), factor)
    t = ops.mul(t, factor)
    bits = ops.to_bits(t)
    # A third of the bits is a third of the logarithm, within 6 %: Kahan. Dividing through the high
    # word, as a float, is exact enough for a first guess.
    high = ops.to_float(ops.lshr(bits, 32))
    guess = ops.fma(high, ops.const(x, 1 / 3), ops.const(x, float(715094163)))
    y = ops.from_bits(ops.shl(ops.to_int(guess), 32))
    third = ops.const(x, 1 / 3)
    for _ in range(3):  # Halley: 4, 14, 44, 53 bits
        cube = ops.mul(ops.mul(y, y), y)
        y = ops.mul(y, ops.div(ops.add(cube, ops.add(t, t)), ops.add(ops.add(cube, cube), t)))
    square, lost = two_product(ops, y, y)
    rest = ops.fma(ops.neg(lost), y, ops.fma(ops.neg(square), y, t))
    y = ops.fma(ops.mul(rest, third), ops.div(one, square), y)
    back = ops.select(tiny, ops.const(x, 2.0**-18), one)
    y = ops.mul(y, ops.select(great, ops.const(x, 2.0**18), back))
    whole = ops.both(ops.lt(ops.const(x, 0.0), t), ops.lt(t, ops.const(x, float("inf"))))
    return ops.select(whole, ops.copysign(y, x), ops.add(x, x))
