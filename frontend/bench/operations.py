"""The operations whose speed is measured, each with its rows of the table.

`torch` is passed in, and tinygrad's tensors come by themselves: nothing here imports a rival.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend.bench.row import Input, Operation, Row
from frontend.nn import functional as F
from frontend.ops.movement import concat
from frontend.tensor import Tensor

Call = Callable[..., Any]


def _squares(word: str, *sizes: int) -> dict[str, tuple[int, ...]]:
    return {f"{word}_{n}": (n, n) for n in sizes}


def _matrices(
    ours: Call,
    torch: Call,
    torch_out: Call | None = None,
    tolerance: float = 0.0,
    *,
    count: int = 1,
    low: float = -2.0,
    tinygrad: Call | None = None,
) -> Callable[[int, int], Row]:
    """Rows of an operation on `count` matrices of the same size."""

    def make(rows: int, columns: int) -> Row:
        inputs = (Input((rows, columns), low),) * count
        return Row("", inputs, ours, torch, torch_out, tolerance, tinygrad)

    return make


# --- element by element --------------------------------------------------------------------------

EACH = (256, 1024, 2048, 4096)
_ADD = _matrices(
    lambda a, b: a + b, lambda t, a, b: a + b, lambda t, o, a, b: t.add(a, b, out=o), 1e-6, count=2
)
_ADD_CONST = _matrices(
    lambda a: a + 2.5, lambda t, a: a + 2.5, lambda t, o, a: t.add(a, 2.5, out=o), 1e-6
)
_EXP = _matrices(lambda a: a.exp(), lambda t, a: a.exp(), lambda t, o, a: t.exp(a, out=o), 1e-6)
_RELU = _matrices(lambda a: a.relu(), lambda t, a: a.relu())
_SQRT = _matrices(
    lambda a: a.sqrt(), lambda t, a: a.sqrt(), lambda t, o, a: t.sqrt(a, out=o), 1e-6, low=0.0
)
_GELU = _matrices(
    lambda a: a.gelu("tanh"),
    lambda t, a: t.nn.functional.gelu(a, approximate="tanh"),
    tolerance=2e-6,
)
_ADD_MUL = _matrices(lambda a, b: (a + b) * b, lambda t, a, b: (a + b) * b, tolerance=1e-6, count=2)
ELEMENTWISE = (
    Operation("add", _ADD, {"add_1x1": (1, 1), **_squares("add", *EACH)}),
    Operation("add_const", _ADD_CONST, _squares("add_const", *EACH)),
    Operation("exp", _EXP, _squares("exp", *EACH)),
    Operation("relu", _RELU, _squares("relu", *EACH)),
    Operation("sqrt", _SQRT, _squares("sqrt", *EACH)),
    Operation("gelu_tanh", _GELU, _squares("gelu_tanh", *EACH)),
    Operation("add_mul", _ADD_MUL, _squares("add_mul", 4096)),
)

# --- reductions ----------------------------------------------------------------------------------

# from 0 to 2: a sum of both signs may come out near zero, where a relative error says nothing
_SUM = _matrices(lambda a: a.sum(), lambda t, a: a.sum(), tolerance=2e-6, low=0.0)
_MAX = _matrices(lambda a: a.max(), lambda t, a: a.max())
_SUM_ROWS = _matrices(
    lambda a: a.sum(1), lambda t, a: a.sum(1), lambda t, o, a: t.sum(a, 1, out=o), 2e-6, low=0.0
)
_SUM_COLUMNS = _matrices(
    lambda a: a.sum(0), lambda t, a: a.sum(0), lambda t, o, a: t.sum(a, 0, out=o), 1e-5, low=0.0
)
_ARGMAX_ROWS = _matrices(
    lambda a: a.argmax(1), lambda t, a: a.argmax(1), lambda t, o, a: t.argmax(a, 1, out=o)
)
_MUL_SUM = _matrices(
    lambda a, b: (a * b).sum(), lambda t, a, b: (a * b).sum(), tolerance=2e-6, count=2, low=0.0
)
REDUCTIONS = (
    Operation("sum", _SUM, _squares("sum", 256, 2048, 4096)),
    Operation("max", _MAX, _squares("max", 256, 2048, 4096)),
    Operation("sum_rows", _SUM_ROWS, _squares("sum_rows", 2048)),
    Operation("sum_columns", _SUM_COLUMNS, _squares("sum_columns", 2048)),
    Operation("argmax_rows", _ARGMAX_ROWS, _squares("argmax_rows", 2048)),
    Operation("mul_sum", _MUL_SUM, _squares("mul_sum", 4096)),
)

# --- whole rows ----------------------------------------------------------------------------------

_SHAPES = ((512, 128), (2048, 2048), (2048, 768))
_SOFTMAX = _matrices(
    lambda a: a.softmax(-1),
    lambda t, a: t.softmax(a, -1),
    lambda t, o, a: t.softmax(a, -1, out=o),
    2e-6,
)
_LAYER_NORM = _matrices(
    lambda a: a.layer_norm(a.shape[-1]),
    lambda t, a: t.nn.functional.layer_norm(a, a.shape[-1:]),
    tolerance=2e-6,
    tinygrad=lambda a: a.layernorm(),
)
_CUMSUM = _matrices(
    lambda a: a.cumsum(1),
    lambda t, a: a.cumsum(1),
    lambda t, o, a: t.cumsum(a, 1, out=o),
    1e-5,
    low=0.0,
)
WHOLE_ROWS = (
    Operation("softmax", _SOFTMAX, {f"softmax_{m}x{n}": (m, n) for m, n in _SHAPES}),
    Operation("layer_norm", _LAYER_NORM, {f"layer_norm_{m}x{n}": (m, n) for m, n in _SHAPES}),
    Operation("cumsum_rows", _CUMSUM, _squares("cumsum_rows", 1024)),
)

# --- moves ---------------------------------------------------------------------------------------


def _concat(axis: int) -> Callable[[int, int], Row]:
    return _matrices(
        lambda a, b: concat([a, b], axis),
        lambda t, a, b: t.cat([a, b], axis),
        lambda t, o, a, b: t.cat([a, b], axis, out=o),
        count=2,
        tinygrad=lambda a, b: a.cat(b, dim=axis).contiguous(),
    )


def _permute(*order: int) -> Callable[..., Row]:
    def make(*shape: int) -> Row:
        return Row(
            "", (Input(shape),),
            lambda a: a.permute(*order).contiguous(),
            lambda t, a: a.permute(*order).contiguous(),
            lambda t, o, a: o.copy_(a.permute(*order)),
        )  # fmt: skip

    return make


def _gather(table: int, width: int, count: int) -> Row:
    return Row(
        "", (Input((table, width)), Input((count,), 0, table, whole=True)),
        lambda a, i: a.index_select(0, i),
        lambda t, a, i: t.index_select(a, 0, i),
        lambda t, o, a, i: t.index_select(a, 0, i, out=o),
        tinygrad=lambda a, i: a[i],
        read_bytes=count * (4 * width + 8),
    )  # fmt: skip


MOVES = (
    Operation("concat_0", _concat(0), {"concat_0_2048": (2048, 2048)}),
    Operation("concat_1", _concat(1), {"concat_1_2048": (2048, 2048)}),
    Operation("permute", _permute(1, 0), _squares("permute", 1024, 4096)),
    Operation("permute_0213", _permute(0, 2, 1, 3), {"permute_0213": (8, 128, 12, 64)}),
    Operation("gather_rows", _gather, {"gather_rows": (30522, 768, 4096)}),
)

# --- products ------------------------------------------------------------------------------------


def _matmul(turned: str = "") -> Callable[[int, int, int], Row]:
    """m, k, n: a matrix (m, k) by one of (k, n); those named in `turned` lie transposed."""

    def operands(a: Any, b: Any) -> tuple[Any, Any]:
        return (a.T if "a" in turned else a), (b.T if "b" in turned else b)

    def ours(a: Any, b: Any) -> Any:
        a, b = operands(a, b)
        return a.matmul(b)

    def make(m: int, k: int, n: int) -> Row:
        shapes = (k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n)
        return Row(
            "", (Input(shapes[0]), Input(shapes[1])),
            ours,
            lambda t, a, b: t.matmul(*operands(a, b)),
            lambda t, o, a, b: t.matmul(*operands(a, b), out=o),
            1e-5,
            flops=2.0 * m * k * n,
        )  # fmt: skip

    return make


def _vector_matrix(k: int, n: int) -> Row:
    return Row(
        "", (Input((k,)), Input((k, n))),
        lambda a, b: a.matmul(b),
        lambda t, a, b: t.matmul(a, b),
        # matmul would warn that it changes the result's shape on the way
        lambda t, o, a, b: t.mv(b.T, a, out=o),
        1e-5,
        flops=2.0 * k * n,
    )  # fmt: skip


def _matrix_vector(m: int, k: int) -> Row:
    return Row(
        "", (Input((m, k)), Input((k,))),
        lambda a, b: a.matmul(b),
        lambda t, a, b: t.matmul(a, b),
        lambda t, o, a, b: t.matmul(a, b, out=o),
        1e-5,
        flops=2.0 * m * k,
    )  # fmt: skip


PRODUCTS = (
    Operation("matmul", _matmul(), {f"matmul_{n}": (n, n, n) for n in (256, 512, 1024, 2048)}),
    Operation("matmul_at_b", _matmul("a"), {"matmul_512_at_b": (512, 512, 512)}),
    Operation("matmul_a_bt", _matmul("b"), {"matmul_512_a_bt": (512, 512, 512)}),
    Operation(
        "matmul",
        _matmul(),
        {
            "matmul_1000": (1000, 1000, 1000),
            "matmul_4x2048x2048": (4, 2048, 2048),
            "matmul_128x576x576": (128, 576, 576),
        },
    ),
    Operation("vector_matrix", _vector_matrix, _squares("vector_matrix", 1024, 4096)),
    Operation("matrix_vector", _matrix_vector, _squares("matrix_vector", 1024, 4096)),
)

# --- convolutions --------------------------------------------------------------------------------


def _convolution(kernel: int, stride: int = 1, padding: int = 0) -> Callable[..., Row]:
    """batch, channels in and out, image: square images and kernels."""

    def make(batch: int, into: int, out: int, image: int) -> Row:
        return _convolved(batch, (into, into, out), kernel, image, stride=stride, padding=padding)

    return make


def _depthwise(batch: int, channels: int, image: int) -> Row:
    return _convolved(batch, (channels, 1, channels), 3, image, groups=channels)


def _convolved(
    batch: int, channels: tuple[int, int, int], kernel: int, image: int, **more: int
) -> Row:
    """`channels`: of the images, those that one kernel sees, and of the result."""
    into, seen, out = channels
    wide = (image + 2 * more.get("padding", 0) - kernel) // more.get("stride", 1) + 1
    return Row(
        "", (Input((batch, into, image, image)), Input((out, seen, kernel, kernel))),
        lambda x, w: x.conv2d(w, **more),
        lambda t, x, w: t.nn.functional.conv2d(x, w, **more),
        tolerance=1e-5,
        flops=2.0 * batch * out * wide**2 * seen * kernel**2,
    )  # fmt: skip


CONVOLUTIONS = (
    Operation(
        "conv_k3",
        _convolution(3),
        {
            "conv_b32_4-32_k3_34": (32, 4, 32, 34),
            "conv_b32_16-32_k3_34": (32, 16, 32, 34),
            "conv_b32_64-32_k3_34": (32, 64, 32, 34),
            "conv_b32_64-64_k3_64": (32, 64, 64, 64),
        },
    ),
    Operation(
        "conv_k3_padded",
        _convolution(3, padding=1),
        {"conv_b1_64-64_k3_128_padded": (1, 64, 64, 128)},
    ),
    Operation("conv_k3", _convolution(3), {"conv_b8_3-64_k3_128": (8, 3, 64, 128)}),
    Operation(
        "conv_k7_stride2",
        _convolution(7, stride=2),
        {"conv_b1_3-64_k7_stride2_224": (1, 3, 64, 224)},
    ),
    Operation("conv_k1", _convolution(1), {"conv_b1_256-256_k1_28": (1, 256, 256, 28)}),
    Operation("conv_depthwise_k3", _depthwise, {"conv_b1_depthwise_128_k3_56": (1, 128, 56)}),
)

# --- attention -----------------------------------------------------------------------------------


def _attention(is_causal: bool) -> Callable[[int, int, int], Row]:
    """heads, length, width of a head; causal, each query sees the keys up to its own."""

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def torch(t: Any, q: Any, k: Any, v: Any) -> Any:
        return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def tinygrad(q: Any, k: Any, v: Any) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

    def make(heads: int, length: int, width: int) -> Row:
        inputs = (Input((1, heads, length, width)),) * 3
        pairs = length * (length + 1) // 2 if is_causal else length**2
        flops = 4.0 * heads * pairs * width
        return Row("", inputs, ours, torch, None, 1e-5, tinygrad, flops)

    return make


ATTENTION = (
    Operation("attention", _attention(False), {f"attention_{n}": (8, n, 64) for n in (512, 2048)}),
    Operation(
        "attention_causal",
        _attention(True),
        {f"attention_{n}_causal": (8, n, 64) for n in (512, 2048)},
    ),
)

OPERATIONS = (
    *ELEMENTWISE,
    *REDUCTIONS,
    *WHOLE_ROWS,
    *MOVES,
    *PRODUCTS,
    *CONVOLUTIONS,
    *ATTENTION,
)
