"""Between tensors and the world: Python numbers, NumPy arrays, DLPack, other devices, text.

NumPy only holds and lays out what the user gave or gets; no number is computed by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import dtype as dt
from frontend import tracing
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node
from frontend.ops import common as c
from rawgpu.errors import DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

Array = np.ndarray[Any, Any]

REPR_LIMIT = 100
"""Tensors of more elements are shown without them."""


def from_data(data: object, dtype: object | None, device: str | None) -> tuple[Node, str]:
    """A node of `data` and the device it is on; see `Tensor`."""
    from frontend.tensor import Tensor

    wanted = None if dtype is None else dt.of(dtype)
    if isinstance(data, Tensor):
        moved = data if device is None else to_device(data, device)
        node = moved.detach().node
        return node if wanted is None else g.cast(node, wanted), moved.device
    where = c.resolved_device(device)
    if isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
        kind = wanted or dt.of(type(data))
        c.held("Tensor", data, kind)
        if not kind.is_float and isinstance(data, float):
            kind, wanted = dt.DEFAULT_FLOAT, kind
        node = g.const(data, (), kind)
        return node if wanted is None else g.cast(node, wanted), where
    array, own = as_array(data, wanted)
    from frontend import engine

    node = engine.from_host(array, array.shape, own, where)
    return node if wanted is None else g.cast(node, wanted), where


def as_array(data: object, wanted: DType | None) -> tuple[Array, DType]:
    """`data` as a contiguous array of storage, which may still have to be cast, and its dtype."""
    if isinstance(data, (list, tuple, range)):
        array = _from_lists(data, wanted)
    elif isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        array = _from_dlpack(data)
    elif hasattr(data, "__array__"):
        array = np.asarray(data)
    else:
        raise DTypeError(f"Tensor: cannot be made from {type(data).__name__}")
    try:
        own = dt.of(array.dtype)
    except DTypeError:
        raise DTypeError(
            f"Tensor: an array of {array.dtype} has no dtype of ours",
            hint="one of " + ", ".join(dt.BY_NAME),
        ) from None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    shape = array.shape  # ascontiguousarray makes scalars one-dimensional
    return np.ascontiguousarray(array).view(own.numpy).reshape(shape), own


def _from_lists(data: Any, wanted: DType | None) -> Array:
    """Lists of floats become float32 (or what is wanted), of integers int64, of tensors a stack."""
    try:
        array = np.array(data if not isinstance(data, range) else list(data))
    except ValueError as error:
        raise ShapeError(f"Tensor: lists of unequal length: {error}") from None
    if array.dtype == object:
        raise DTypeError("Tensor: lists hold something that is no number of ours, or are too large")
    if array.dtype.kind == "f" and array.size == 0:
        array = array.astype(np.float32)
    floats = array.dtype.kind == "f"
    if wanted is not None and wanted.is_integer and floats:
        for value in array.ravel().tolist():
            c.held("Tensor", value, wanted)
    if wanted is None:
        return array.astype(np.float32) if floats else array
    if wanted.is_native and (wanted.is_float or not floats):
        if wanted.is_integer and array.dtype.kind in "iu":
            _check_range(array, wanted)
        return array.astype(wanted.numpy)
    return array


def _check_range(array: Array, wanted: DType) -> None:
    low, high = dt.limits(wanted)
    values = array.ravel().tolist()
    if values and not (low <= min(values) and max(values) <= high):
        raise OperationError(f"Tensor: {min(values)} to {max(values)} do not fit {wanted}")


def _from_dlpack(data: Any) -> Array:
    try:
        return np.from_dlpack(data)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise DTypeError(
            f"from_dlpack: {error}", hint="host memory of a dtype NumPy knows"
        ) from None


def from_dlpack(data: object, device: str | None = None) -> Tensor:
    """A copy of a DLPack object in host memory. Raises DTypeError for what NumPy cannot read."""
    from frontend.tensor import Tensor

    return Tensor(_from_dlpack(data), device=device)


# -- to the world


def to_numpy(x: Tensor) -> Array:
    """See `Tensor.numpy`."""
    from frontend import engine

    if not x.dtype.is_native:
        return to_numpy(x.detach().astype(dt.float32))
    if x.ndim > c.MAX_AXES:
        raise ShapeError(f"numpy: {x.ndim} axes; a NumPy array has {c.MAX_AXES} at most")
    x.realize()
    return np.asarray(engine.to_host(x.node)).reshape(x.shape)


def to_dlpack(x: Tensor, options: dict[str, Any]) -> Any:
    """A capsule of a host copy."""
    if options.get("copy") is False:
        raise BufferError("a tensor's memory is copied to the host")
    given = {k: v for k, v in options.items() if v is not None and k != "copy"}
    known = {"stream", "max_version", "dl_device"}
    if unknown := sorted(given.keys() - known):
        raise OperationError(f"__dlpack__: no option {', '.join(unknown)}")
    try:
        return to_numpy(x).__dlpack__(**given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OperationError(f"__dlpack__: {error}") from None


def placed(node: Node, device: str) -> Node:
    """`node` with a device: constants and ramps have none until they are computed."""
    return node if node.device is not None else g.copy_to(node, device)


def to(x: Tensor, target: object) -> Tensor:
    """See `Tensor.to`."""
    if not isinstance(target, str) or target in dt.BY_NAME:
        return x.astype(target)
    return to_device(x, target)


def to_device(x: Tensor, device: str) -> Tensor:
    """The same value on `device`. Raises DeviceNotFound."""
    name = c.resolved_device(device)
    if name == x.device:
        return x
    node = x.node if x.node.device is None else g.copy_to(x.node, name)
    out = x._derive(node)
    out._device = name
    return out


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    """See `Tensor.bitcast`."""
    if x.dtype.bits != dtype.bits or "b" in (x.dtype.kind, dtype.kind):
        raise DTypeError(
            f"bitcast: {x.dtype} to {dtype}: both need the same width, and neither is bool"
        )
    return x._derive(g.bitcast(x.node, dtype))


def describe(x: Tensor) -> str:
    """Shape, dtype and device, and the elements where they are few and known."""
    head = f"shape={x.shape}, dtype={x.dtype}, device={x.device}"
    if x.requires_grad:
        head += ", requires_grad"
    known = x.is_realized and tracing.state.trace is None
    if known and 0 < x.size <= REPR_LIMIT:
        return f"Tensor({_text(to_numpy(x).tolist())}, {head})"
    return f"Tensor({head})" if known else f"Tensor({head}, lazy)"


def _text(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_text(v) for v in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
