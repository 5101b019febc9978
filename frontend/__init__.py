"""A thin tensor library over rawgpu: lazy tensors, gradients, and code generation of its own.

>>> from frontend import Tensor
>>> (Tensor([1.0, 2.0]) * 3).sum().item()
9.0

`Tensor` has the operations as methods; what takes several tensors or none is here as a function.

Read `tensor.py` and `ops`, which ask for things, then `engine.py`, which computes them through
`graph`, `schedule`, `loops`, `instructions` and `text`; then `capture.py`, `nn` and `optim`.
`state.py` and `safetensors.py` keep weights; `show.py`, `profile.py`, `workbench.py` look inside.
"""

from frontend.capture import jit
from frontend.dtype import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from frontend.ops.arithmetic import where
from frontend.ops.autograd import grad
from frontend.ops.common import no_grad
from frontend.ops.convert import from_dlpack
from frontend.ops.creation import (
    arange,
    empty,
    eye,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from frontend.ops.linalg import einsum, tensordot
from frontend.ops.movement import concat, meshgrid, stack
from frontend.ops.random import (
    Generator,
    default_generator,
    manual_seed,
    normal,
    permutation,
    rand,
    randint,
    randn,
    uniform,
)
from frontend.tensor import Tensor

__all__ = [
    "Tensor",
    "Generator",
    "DType",
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3",
    "float8_e5m2",
    "arange",
    "empty",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
    "from_dlpack",
    "concat",
    "einsum",
    "meshgrid",
    "stack",
    "tensordot",
    "where",
    "default_generator",
    "manual_seed",
    "normal",
    "permutation",
    "rand",
    "randint",
    "randn",
    "uniform",
    "grad",
    "no_grad",
    "jit",
]
