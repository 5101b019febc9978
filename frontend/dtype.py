"""Element types, and what comes of two of them.

`DType` is a row: name, kind, size, and the NumPy type with the same bytes. bfloat16 and the two
fp8 types have no NumPy type; their bytes travel as unsigned integers and `Tensor.numpy` widens
them to float32 on the device.

Promotion is the array API's, widened: an integer with a float gives the float's dtype, float16 with
bfloat16 gives float32, and fp8 is for storage only (arithmetic on it is done in float32).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawgpu.errors import DTypeError


@dataclass(frozen=True)
class DType:
    """One element type.

    `kind` is b(ool), i(nt), u(nsigned) or f(loat); `bits` is the size in memory.
    """

    name: str
    kind: str
    bits: int
    storage: str
    """NumPy name of the type that has the same bytes."""

    @property
    def size_bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    @property
    def is_native(self) -> bool:
        """True where NumPy has this very type."""
        return self.name == self.storage

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.storage)

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)


bool_ = DType("bool", "b", 8, "bool")
int8 = DType("int8", "i", 8, "int8")
int16 = DType("int16", "i", 16, "int16")
int32 = DType("int32", "i", 32, "int32")
int64 = DType("int64", "i", 64, "int64")
uint8 = DType("uint8", "u", 8, "uint8")
uint16 = DType("uint16", "u", 16, "uint16")
uint32 = DType("uint32", "u", 32, "uint32")
uint64 = DType("uint64", "u", 64, "uint64")
float16 = DType("float16", "f", 16, "float16")
bfloat16 = DType("bfloat16", "f", 16, "uint16")
float32 = DType("float32", "f", 32, "float32")
float64 = DType("float64", "f", 64, "float64")
float8_e4m3 = DType("float8_e4m3", "f", 8, "uint8")
float8_e5m2 = DType("float8_e5m2", "f", 8, "uint8")

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, float8_e4m3, float8_e5m2,
)  # fmt: skip
BY_NAME = {d.name: d for d in ALL}
FP8 = (float8_e4m3, float8_e5m2)

DEFAULT_FLOAT = float32
DEFAULT_INT = int64


def of(spec: object) -> DType:
    """The DType for a DType, a name, a NumPy dtype or scalar type, or Python's bool, int, float.

    None is no dtype here, though NumPy takes it for float64. Raises DTypeError.
    """
    if isinstance(spec, DType):
        return spec
    if spec is bool:
        return bool_
    if spec is int:
        return DEFAULT_INT
    if spec is float:
        return DEFAULT_FLOAT
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec]
    if spec is None:
        raise DTypeError("no dtype None", hint="one of " + ", ".join(BY_NAME))
    try:
        name = np.dtype(spec).newbyteorder("=").name  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError):  # NumPy reads a language of its own in text
        name = str(spec)
    name = {"float8_e4m3fn": "float8_e4m3"}.get(name, name)
    if name in BY_NAME:
        return BY_NAME[name]
    raise DTypeError(f"no dtype {spec!r}", hint="one of " + ", ".join(BY_NAME))


def chosen(spec: object | None, default: DType) -> DType:
    """The DType for `spec` as `of` takes it, or `default` for None."""
    return default if spec is None else of(spec)


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two tensors. Raises DTypeError for uint64 with a signed integer."""
    if a is b:
        return a
    if a.kind == "b":
        return b
    if b.kind == "b":
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if a.bits == b.bits:  # float16 with bfloat16, or the two fp8 types
            return float32
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise DTypeError(f"{a} and {b} have no common dtype", hint="cast one of them first")
    return BY_NAME[f"int{unsigned.bits * 2}"]


def of_scalar(value: bool | int | float, tensor: DType) -> DType:
    """The dtype of a Python scalar that meets a tensor: the tensor's, if its kind can hold it."""
    if isinstance(value, bool) or (isinstance(value, int) and tensor.kind != "b"):
        return tensor
    if isinstance(value, int):
        return DEFAULT_INT
    return tensor if tensor.is_float else DEFAULT_FLOAT


def accumulator(dtype: DType) -> DType:
    """The type in which sums and products of `dtype` are kept while they grow."""
    if dtype.is_float and dtype.bits < 32:
        return float32
    return dtype


def limits(dtype: DType) -> tuple[float | int | bool, float | int | bool]:
    """Lowest and highest value; infinities for floats, as identities of max and min."""
    if dtype.kind == "b":
        return False, True
    if dtype.is_float:
        return float("-inf"), float("inf")
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
