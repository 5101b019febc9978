"""Linear layers."""

from __future__ import annotations

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module
from frontend.tensor import Tensor
from rawgpu.errors import ShapeError


class Linear(Module):
    """x @ weight.T + bias: (..., in_features) gives (..., out_features).

    weight (out_features, in_features) and bias (out_features,), uniform within 1/sqrt(in_features).
    Calling raises ShapeError if the last extent is another.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if min(in_features, out_features) < 0:
            raise ShapeError(f"Linear: {in_features} to {out_features} features")
        self.in_features = in_features
        self.out_features = out_features
        self.weight = init.by_fan_in((out_features, in_features), in_features, dtype, device)
        self.register_parameter(
            "bias", init.by_fan_in((out_features,), in_features, dtype, device) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1 @ weight[o] @ x2 + bias[o]: (..., in1) and (..., in2) give (..., out).

    weight (out, in1, in2) and bias (out,), uniform within 1/sqrt(in1).
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        shape = (out_features, in1_features, in2_features)
        self.weight = init.by_fan_in(shape, in1_features, dtype, device)
        self.register_parameter(
            "bias", init.by_fan_in((out_features,), in1_features, dtype, device) if bias else None
        )

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        out_features, in1, in2 = self.weight.shape
        if x1.shape[-1:] != (in1,) or x2.shape != (*x1.shape[:-1], in2):
            raise ShapeError(f"Bilinear: {x1.shape} and {x2.shape} for weight {self.weight.shape}")
        a, b = x1.reshape(-1, 1, in1), x2.reshape(-1, 1, in2)
        turned = a.reshape(-1, in1) @ self.weight.permute(1, 0, 2).reshape(in1, out_features * in2)
        out = (turned.reshape(-1, out_features, in2) * b).sum(-1)
        out = out if self.bias is None else out + self.bias
        return out.reshape(*x1.shape[:-1], out_features)
