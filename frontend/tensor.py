"""`Tensor`: a lazy value on a device.

A tensor wraps a node of the graph (`frontend/graph/node.py`). Operations make new nodes and compute
nothing; `realize`, `numpy`, `item` and printing do, through `frontend/engine.py`. Tensors are
values: `t[i] = v` gives `t` another node and changes no other tensor, whatever shares its elements.

The operations are functions in `frontend/ops`; the lists in the class say which is which method.
Names are the array API's; torch's follow as aliases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from frontend import dtype as dt
from frontend import tracing
from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Op, Shape
from frontend.ops import (
    arithmetic,
    autograd,
    convert,
    convolution,
    creation,
    elementwise,
    indexing,
    linalg,
    losses,
    movement,
    pooling,
    random,
    reduce,
    sorting,
)
from frontend.ops.common import Operand, as_tensor, grad_mode
from rawgpu.errors import DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    pass


class Tensor:
    """An n-dimensional array of one dtype on one device, computed when it is needed.

    `data` is a number, nested lists of numbers, a NumPy array of any strides and byte order,
    another tensor, or anything with DLPack's or NumPy's array protocol; it is copied. Real numbers
    become float32 and whole ones int64 unless `dtype` says otherwise; arrays keep their dtype. With
    `requires_grad`, `backward` fills `.grad`.

    Raises DTypeError for data of no known dtype, ShapeError for ragged lists, DeviceNotFound.
    """

    __slots__ = ("__weakref__", "_device", "_grad", "_node", "_requires_grad", "_serial")
    __array_ufunc__ = None  # NumPy leaves `array + tensor` to us
    __hash__ = object.__hash__  # by identity, though == compares elements

    _node: Node
    _device: str
    _requires_grad: bool
    _serial: int
    """The recording it was made in; 0 outside of any."""
    _grad: Tensor | None

    def __init__(
        self,
        data: object,
        dtype: object | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        node, self._device = convert.from_data(data, dtype, device)
        self._node = node
        self._requires_grad = False
        self._serial = tracing.state.serial
        self._grad = None
        if requires_grad:
            autograd.set_requires_grad(self, True)

    # -- what it is

    @property
    def node(self) -> Node:
        """The graph node; every operation reads its operands here."""
        if tracing.state.trace is not None:
            return tracing.state.trace.node_of(self)
        return self._node

    @property
    def shape(self) -> Shape:
        return self._node.shape

    @property
    def dtype(self) -> DType:
        return self._node.dtype

    @property
    def device(self) -> str:
        """Name of the device the value is, or will be, on."""
        return self._device

    @property
    def ndim(self) -> int:
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._node.size

    @property
    def nbytes(self) -> int:
        return self._node.size * self._node.dtype.size_bytes

    @property
    def requires_grad(self) -> bool:
        """True for leaves made so, and for what is computed from them. May be set."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        autograd.set_requires_grad(self, value)

    @property
    def grad(self) -> Tensor | None:
        """What `backward` added up, for a leaf that requires a gradient. May be set."""
        if tracing.state.trace is not None:
            tracing.state.trace.reads_gradient(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if tracing.state.trace is not None:
            tracing.state.trace.sets_gradient(self)
        self._grad = autograd.checked_grad(self, value)

    @property
    def is_leaf(self) -> bool:
        """True unless computed from something that requires a gradient."""
        return autograd.is_leaf(self)

    @property
    def is_realized(self) -> bool:
        """True where the value lies in device memory."""
        return self._node.storage is not None

    # -- making results and changing values: the only two ways

    @classmethod
    def _new(cls, node: Node, device: str) -> Tensor:
        """A tensor of `node` without history of gradients."""
        out = cls.__new__(cls)
        out._node = node
        out._device = device
        out._requires_grad = False
        out._serial = tracing.state.serial
        out._grad = None
        return out

    def _derive(self, node: Node, *others: Tensor) -> Tensor:
        """The result `node` of an operation on self and others."""
        out = Tensor.__new__(Tensor)
        out._node = node
        out._device = self._device
        out._requires_grad = False
        out._serial = tracing.state.serial
        out._grad = None
        if self._requires_grad or (others and any(t._requires_grad for t in others)):
            if not grad_mode.enabled:
                out._node = autograd.cut(node)
            else:
                out._requires_grad = node.dtype.is_float
        return out

    def _rebind(self, node: Node, *, history: bool = False) -> None:
        """Take another value.

        A leaf stays one, unless `node` carries the `history` of gradients.
        """
        if tracing.state.trace is not None:
            tracing.state.trace.rebound(self)
        if self._requires_grad and not history:
            node = autograd.own_node(node)
            autograd.register(node, self)
        self._node = node

    def _become(self, result: Tensor, name: str) -> Tensor:
        """Self after an operation in place: `result`, whose dtype and shape must be the same."""
        if result.shape != self.shape:
            raise ShapeError(f"{name}: in place, {self.shape} cannot become {result.shape}")
        if result.dtype is not self.dtype:
            raise DTypeError(f"{name}: in place, {self.dtype} cannot become {result.dtype}")
        if result._requires_grad and self._requires_grad and self.is_leaf:
            raise OperationError(
                f"{name}: a leaf that requires a gradient is changed in place",
                hint="do it within no_grad(), or use assign()",
            )
        keeps = self._requires_grad and self.is_leaf
        self._rebind(result.node, history=not keeps)
        self._requires_grad = keeps or result._requires_grad
        return self

    def assign(self, value: Operand) -> Tensor:
        """Take the value of `value`, broadcast and cast; a leaf stays a leaf. Returns self."""
        other = as_tensor(value, self, "assign")
        node = movement.broadcast_to(other.to(self._device), self.shape).astype(self.dtype).node
        self._rebind(autograd.cut(node))
        return self

    # -- computing

    def realize(self, *others: Tensor) -> Tensor:
        """Compute the value, and those of `others` in the same go. Returns self.

        A tensor without gradient forgets how it was computed.
        """
        if tracing.state.trace is not None:  # a recording computes all it needs at its end
            return self
        tensors = (self, *others)
        pending = [t for t in tensors if t._node.storage is None]
        if pending:
            from frontend import engine

            nodes = [convert.placed(t._node, t._device) for t in pending]
            engine.realize(nodes)
            for tensor, node in zip(pending, nodes, strict=True):
                tensor._collapse(node)
        for tensor in tensors:
            if tensor._node.op is not Op.BUFFER:
                tensor._collapse(tensor._node)
        return self

    def _collapse(self, node: Node) -> None:
        """Keep the storage of the realised `node` and, unless gradients need it, no history."""
        if self._requires_grad and not self.is_leaf:
            self._node = node
            return
        buffer = g.buffer(node.shape, node.dtype, self._device, node.storage)
        if self._requires_grad:
            autograd.register(buffer, self)
        self._node = buffer

    def contiguous(self) -> Tensor:
        """The same value in memory of its own."""
        return self._derive(g.contiguous(self.node))

    def clone(self) -> Tensor:
        """The same value; a tensor is a value, so nothing is copied."""
        return self._derive(self.node)

    def to(self, target: object) -> Tensor:
        """On another device, if `target` names one, else cast to that dtype."""
        return convert.to(self, target)

    def astype(self, dtype: object) -> Tensor:
        """Values converted; anything to bool is `!= 0`.

        Floats to integers truncate; what is out of range becomes the nearest integer there is, NaN
        becomes 0. Integers wrap.
        """
        return self._derive(g.cast(self.node, dt.of(dtype)))

    def bitcast(self, dtype: object) -> Tensor:
        """The same bits as a dtype of the same width. Raises DTypeError."""
        return convert.bitcast(self, dt.of(dtype))

    # -- to Python and NumPy

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a fresh array.

        Bfloat16 and fp8, which NumPy lacks, are widened to float32.
        """
        return convert.to_numpy(self)

    def tolist(self) -> Any:
        """Nested lists of Python numbers, or one number for a scalar."""
        return self.numpy().tolist()

    def item(self) -> bool | int | float:
        """The only element as a Python number. Raises ShapeError if there are more, or none."""
        if self.size != 1:
            raise ShapeError(
                f"item: a tensor of shape {self.shape} has {self.size} elements, not 1"
            )
        value: bool | int | float = self.numpy().item()
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise OperationError("__array__: device memory is always copied")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return convert.to_dlpack(self, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # what is handed out is a copy in host memory

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"bool: a tensor of shape {self.shape} is neither true nor false",
                hint="any() or all()",
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer or self.ndim:
            raise DTypeError(f"index: {self.dtype}{list(self.shape)} is no whole number")
        return int(self.item())

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError("len: a scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise ShapeError("iter: a scalar has no elements to go through")
        return iter(movement.unbind(self, 0))

    def __repr__(self) -> str:
        return convert.describe(self)

    def __copy__(self) -> Tensor:
        return self.clone()

    def __reduce__(self) -> NoReturn:
        raise OperationError(
            "pickle: a tensor is on a device and is not pickled",
            hint="frontend.safetensors.save, or pickle .numpy()",
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        out = self._new(autograd.own_node(self.node), self._device)
        out.requires_grad = self._requires_grad
        memo[id(self)] = out
        return out

    # -- gradients

    backward = autograd.backward
    detach = autograd.detach

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Set `requires_grad` and return self."""
        self.requires_grad = value
        return self

    # -- in place: self takes another value

    __iadd__ = arithmetic.iadd
    __isub__ = arithmetic.isubtract
    __imul__ = arithmetic.imultiply
    __itruediv__ = arithmetic.idivide
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem

    # -- creation

    full = staticmethod(creation.full)
    zeros = staticmethod(creation.zeros)
    ones = staticmethod(creation.ones)
    empty = staticmethod(creation.empty)
    arange = staticmethod(creation.arange)
    linspace = staticmethod(creation.linspace)
    eye = staticmethod(creation.eye)
    full_like = creation.full_like
    zeros_like = creation.zeros_like
    ones_like = creation.ones_like
    one_hot = creation.one_hot
    manual_seed = staticmethod(random.manual_seed)
    rand = staticmethod(random.rand)
    randn = staticmethod(random.randn)
    randint = staticmethod(random.randint)
    uniform = staticmethod(random.uniform)
    normal = staticmethod(random.normal)
    permutation = staticmethod(random.permutation)
    rand_like = random.rand_like
    randn_like = random.randn_like
    bernoulli = random.bernoulli
    multinomial = random.multinomial
    dropout = random.dropout
    shuffle = random.shuffle

    # -- two operands

    add = __add__ = __radd__ = arithmetic.add
    subtract = sub = __sub__ = arithmetic.subtract
    __rsub__ = arithmetic.rsubtract
    multiply = mul = __mul__ = __rmul__ = arithmetic.multiply
    divide = div = __truediv__ = arithmetic.divide
    __rtruediv__ = arithmetic.rdivide
    floor_divide = __floordiv__ = arithmetic.floor_divide
    __rfloordiv__ = arithmetic.rfloor_divide
    remainder = __mod__ = arithmetic.remainder
    __rmod__ = arithmetic.rremainder
    fmod = arithmetic.fmod
    pow = __pow__ = arithmetic.power
    __rpow__ = arithmetic.rpower
    atan2 = arithmetic.atan2
    copysign = arithmetic.copysign
    hypot = arithmetic.hypot
    logaddexp = arithmetic.logaddexp
    maximum = arithmetic.maximum
    minimum = arithmetic.minimum
    clip = clamp = arithmetic.clip
    lerp = arithmetic.lerp
    equal = eq = arithmetic.equal
    not_equal = ne = arithmetic.not_equal
    less = lt = __lt__ = arithmetic.less
    less_equal = le = __le__ = arithmetic.less_equal
    greater = gt = __gt__ = arithmetic.greater
    greater_equal = ge = __ge__ = arithmetic.greater_equal
    __eq__ = arithmetic.equal  # type: ignore[assignment]  # object's == gives bool
    __ne__ = arithmetic.not_equal  # type: ignore[assignment]
    isclose = arithmetic.isclose
    bitwise_and = __and__ = __rand__ = arithmetic.bitwise_and
    bitwise_or = __or__ = __ror__ = arithmetic.bitwise_or
    bitwise_xor = __xor__ = __rxor__ = arithmetic.bitwise_xor
    bitwise_left_shift = __lshift__ = arithmetic.bitwise_left_shift
    __rlshift__ = arithmetic.rleft_shift
    bitwise_right_shift = __rshift__ = arithmetic.bitwise_right_shift
    __rrshift__ = arithmetic.rright_shift
    logical_and = arithmetic.logical_and
    logical_or = arithmetic.logical_or
    logical_xor = arithmetic.logical_xor
    where = arithmetic.where
    masked_fill = arithmetic.masked_fill

    # -- one operand

    positive = __pos__ = elementwise.positive
    negative = neg = __neg__ = elementwise.negative
    abs = __abs__ = elementwise.absolute
    bitwise_invert = __invert__ = elementwise.bitwise_invert
    logical_not = elementwise.logical_not
    sign = elementwise.sign
    signbit = elementwise.signbit
    isnan = elementwise.isnan
    isinf = elementwise.isinf
    isfinite = elementwise.isfinite
    nan_to_num = elementwise.nan_to_num
    floor = elementwise.floor
    ceil = elementwise.ceil
    trunc = elementwise.trunc
    round = elementwise.round_
    square = elementwise.square
    reciprocal = elementwise.reciprocal
    sqrt = elementwise.sqrt
    rsqrt = elementwise.rsqrt
    exp = elementwise.exp
    exp2 = elementwise.exp2
    expm1 = elementwise.expm1
    log = elementwise.log
    log2 = elementwise.log2
    log10 = elementwise.log10
    log1p = elementwise.log1p
    sin = elementwise.sin
    cos = elementwise.cos
    tan = elementwise.tan
    asin = elementwise.asin
    acos = elementwise.acos
    atan = elementwise.atan
    sinh = elementwise.sinh
    cosh = elementwise.cosh
    tanh = elementwise.tanh
    asinh = elementwise.asinh
    acosh = elementwise.acosh
    atanh = elementwise.atanh
    erf = elementwise.erf
    relu = elementwise.relu
    sigmoid = elementwise.sigmoid
    silu = elementwise.silu
    softplus = elementwise.softplus
    logsigmoid = elementwise.logsigmoid
    gelu = elementwise.gelu
    leaky_relu = elementwise.leaky_relu
    elu = elementwise.elu
    hardtanh = elementwise.hardtanh

    # -- reductions and scans

    sum = reduce.sum
    prod = reduce.prod
    max = amax = reduce.max
    min = amin = reduce.min
    any = reduce.any
    all = reduce.all
    count_nonzero = reduce.count_nonzero
    argmax = reduce.argmax
    argmin = reduce.argmin
    mean = reduce.mean
    var = reduce.var
    std = reduce.std
    norm = reduce.norm
    softmax = reduce.softmax
    log_softmax = reduce.log_softmax
    logsumexp = reduce.logsumexp
    cumsum = cumulative_sum = reduce.cumsum
    cumprod = cumulative_prod = reduce.cumprod
    cummax = reduce.cummax
    cummin = reduce.cummin
    diff = reduce.diff

    # -- movement

    reshape = view = movement.reshape
    flatten = movement.flatten
    unflatten = movement.unflatten
    squeeze = movement.squeeze
    expand_dims = unsqueeze = movement.expand_dims
    broadcast_to = expand = movement.broadcast_to
    permute = movement.permute
    swapaxes = transpose = movement.swapaxes
    moveaxis = movement.moveaxis
    matrix_transpose = movement.matrix_transpose
    T = property(movement.permute)
    mT = property(movement.matrix_transpose)
    flip = movement.flip
    roll = movement.roll
    tile = movement.tile
    repeat = repeat_interleave = movement.repeat
    split = movement.split
    chunk = movement.chunk
    unbind = movement.unbind
    pad = movement.pad
    tril = movement.tril
    triu = movement.triu
    diagonal = movement.diagonal
    diag = movement.diag

    # -- products

    matmul = __matmul__ = linalg.matmul
    __rmatmul__ = linalg.rmatmul
    dot = linalg.dot
    vecdot = linalg.vecdot
    outer = linalg.outer
    trace = linalg.trace
    tensordot = linalg.tensordot
    kron = linalg.kron

    # -- selection and order

    take = indexing.take
    index_select = indexing.index_select
    take_along_axis = indexing.take_along_axis
    gather = indexing.gather
    scatter = indexing.scatter
    scatter_add = indexing.scatter_add
    index_add = indexing.index_add
    nonzero = indexing.nonzero
    masked_select = indexing.masked_select
    argsort = sorting.argsort
    sort = sorting.sort
    topk = sorting.topk
    unique = sorting.unique
    searchsorted = sorting.searchsorted
    quantile = sorting.quantile
    median = sorting.median
    bincount = sorting.bincount

    # -- networks

    conv1d = convolution.conv1d
    conv2d = convolution.conv2d
    conv3d = convolution.conv3d
    conv_transpose = convolution.conv_transpose
    max_pool = max_pool1d = max_pool2d = max_pool3d = pooling.max_pool
    avg_pool = avg_pool1d = avg_pool2d = avg_pool3d = pooling.avg_pool
    adaptive_avg_pool = adaptive_avg_pool2d = pooling.adaptive_avg_pool
    cross_entropy = losses.cross_entropy
    layer_norm = losses.layer_norm
