"""From graph gradients to tensors: leaves, `backward` and `grad`.

A leaf is a tensor the user said needs a gradient. Its node is registered here and belongs to it
alone: a fresh buffer, or a DETACH with an identity of its own when the value is still to be
computed. A leaf that is assigned a new value gets a new node; graphs built from the old value still
lead to the leaf.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from frontend.graph import gradient
from frontend.graph import node as g
from frontend.graph.node import Node, Op
from frontend.ops import common as c
from rawgpu.errors import DTypeError, OperationError, ShapeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor

_leaves: weakref.WeakKeyDictionary[Node, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()


def register(node: Node, tensor: Tensor) -> None:
    """`node`, which must be nobody else's, leads gradients to `tensor`."""
    _leaves[node] = weakref.ref(tensor)


def own_node(node: Node) -> Node:
    """A node of the same value that nobody else has."""
    if node.storage is not None and node.device is not None:
        return g.buffer(node.shape, node.dtype, node.device, node.storage)
    return g.leaf(node)


def cut(node: Node) -> Node:
    """The same value, from which no gradient goes on."""
    if not node.dtype.is_float or (node.op is Op.BUFFER and node not in _leaves):
        return node
    return g.detach(node)


def leaf_of(node: Node) -> Tensor | None:
    """The living tensor whose leaf `node` is."""
    reference = _leaves.get(node)
    return None if reference is None else reference()


def backward(x: Tensor, gradient_of_x: Tensor | None = None) -> None:
    """Add d(x)/d(leaf) to `.grad` of every leaf that x was computed from.

    A tensor of more than one element needs `gradient_of_x`, of its shape. The graph is kept, so a
    second call adds the same again. Raises OperationError if x does not require a gradient.
    """
    seed = _seed(x, gradient_of_x, "backward")
    found: list[tuple[Node, Tensor]] = []
    for node in gradient.differentiable(x.node):
        leaf = leaf_of(node)
        if leaf is not None and leaf.requires_grad:
            found.append((node, leaf))
    parts = gradient.gradients(x.node, seed, [node for node, _ in found])
    for (_, leaf), part in zip(found, parts, strict=True):
        if part is None:  # on the way, but where the slope is nothing: the sign of copysign
            continue
        grad = leaf._new(cut(part), leaf.device)
        leaf.grad = grad if leaf.grad is None else leaf.grad + grad


def grad(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    gradient_of_output: Tensor | None = None,
    *,
    create_graph: bool = False,
) -> list[Tensor]:
    """d(output)/d(input) for each input, any tensor that output was computed from.

    Zeros if it was not.

    With `create_graph` the results can be differentiated again. Touches no `.grad`.
    """
    seed = _seed(output, gradient_of_output, "grad")
    listed: Sequence[Tensor] = inputs if isinstance(inputs, (list, tuple)) else [inputs]  # type: ignore[list-item]
    for tensor in listed:
        if not isinstance(tensor, type(output)):
            raise OperationError(
                f"grad: inputs are tensors or a list of them, not a {type(tensor).__name__}"
            )
    parts = gradient.gradients(output.node, seed, [t.node for t in listed])
    results = []
    for tensor, part in zip(listed, parts, strict=True):
        node = c.like(0.0, tensor.node) if part is None else part
        result = tensor._new(node if create_graph else cut(node), tensor.device)
        if create_graph:
            result._requires_grad = True
        results.append(result)
    return results


def checked_grad(x: Tensor, value: Tensor | None) -> Tensor | None:
    """`value` as x's gradient. Raises OperationError, ShapeError, DTypeError."""
    if value is None:
        return None
    if not isinstance(value, type(x)):
        raise OperationError(f"grad: a gradient is a tensor or None, not a {type(value).__name__}")
    c.same_device("grad", x, value)
    if value.shape != x.shape:
        raise ShapeError(f"grad: a gradient {value.shape} of a tensor {x.shape}")
    if value.dtype is not x.dtype:
        raise DTypeError(f"grad: a gradient of {value.dtype} for a tensor of {x.dtype}")
    return value


def _seed(x: Tensor, given: Tensor | None, name: str) -> Node:
    from frontend.tensor import Tensor

    if not isinstance(x, Tensor):
        raise OperationError(f"{name}: differentiates a tensor, not a {type(x).__name__}")
    if not x.requires_grad:
        raise OperationError(
            f"{name}: the tensor was computed from none that requires a gradient",
            hint="create its inputs with requires_grad=True, outside no_grad()",
        )
    if given is None:
        if x.size != 1:
            raise ShapeError(f"{name}: a tensor of shape {x.shape} needs a gradient to start from")
        return c.like(1.0, x.node)
    if not isinstance(given, type(x)):
        raise OperationError(
            f"{name}: the gradient to start from is a tensor, not a {type(given).__name__}"
        )
    c.same_device(name, x, given)
    if given.shape != x.shape or given.dtype is not x.dtype:
        raise ShapeError(
            f"{name}: the gradient {given.dtype}{given.shape} should be {x.dtype}{x.shape}"
        )
    return given.node


def detach(x: Tensor) -> Tensor:
    """The same value without a derivative."""
    return x._new(cut(x.node), x.device)


def set_requires_grad(x: Tensor, value: bool) -> None:
    """Make x a leaf, or cut it from what it was computed from.

    Raises DTypeError unless x is of floats.
    """
    value = c.flag("requires_grad", "it", value)
    if value == x._requires_grad:
        return
    node = x.node
    if not value:
        x._requires_grad = False
        x._rebind(cut(node))
        return
    if not x.dtype.is_float:
        raise DTypeError(f"requires_grad: only floats have a gradient, not {x.dtype}")
    x._requires_grad = True
    x._rebind(node)


def is_leaf(x: Tensor) -> bool:
    """True unless x was computed from something that requires a gradient."""
    return not x._requires_grad or leaf_of(x._node) is x
