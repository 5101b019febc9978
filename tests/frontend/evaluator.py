"""The engine that tests realise through: the real one, or NumPy's where there is none.

`install()` puts a stand-in for `frontend.engine` in place if the real one cannot be imported or
RAWGPU_TEST_REFERENCE is set. The stand-in keeps the same four functions and evaluates by
`reference.py`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from frontend.dtype import DType
from frontend.graph import node as g
from frontend.graph.node import Node, Shape
from rawgpu.errors import DeviceNotFound
from tests.frontend import reference

DEVICES = ("cpu:0", "cpu:1")


def uses_reference() -> bool:
    """True where tests do not run generated kernels."""
    if os.environ.get("RAWGPU_TEST_REFERENCE"):
        return True
    return importlib.util.find_spec("frontend.engine") is None


def realize(nodes: Sequence[Node]) -> None:
    values = reference.evaluate_all(nodes)
    for node, value in zip(nodes, values, strict=True):
        assert node.device is not None, node
        node.storage = reference.storage_of(value, node.dtype)


def from_host(array: np.ndarray[Any, Any], shape: Shape, dtype: DType, device: str) -> Node:
    assert array.flags.c_contiguous and array.dtype == dtype.numpy, (array.dtype, dtype)
    return g.buffer(shape, dtype, device, array.reshape(shape).copy())


def to_host(node: Node) -> np.ndarray[Any, Any]:
    if node.storage is None:
        realize([node])
    storage: np.ndarray[Any, Any] = node.storage
    return storage.copy()


def default_device() -> str:
    return "cpu:0"


def check_device(name: str) -> str:
    name = {"cpu": "cpu:0"}.get(name, name)
    if name not in DEVICES:
        raise DeviceNotFound(f"no device {name!r}")
    return name


def install() -> None:
    if not uses_reference():
        return
    import frontend

    module = ModuleType("frontend.engine")
    for function in (realize, from_host, to_host, default_device, check_device):
        setattr(module, function.__name__, function)
    sys.modules["frontend.engine"] = module
    frontend.engine = module  # type: ignore[attr-defined]
