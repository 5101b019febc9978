"""Multi-head attention, and the transformer's layers made of it.

Masks follow torch where it does not follow itself: in `MultiheadAttention` a bool mask is true
where a query must *not* see a key, in `functional.scaled_dot_product_attention` where it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.dropout import Dropout
from frontend.nn.linear import Linear
from frontend.nn.module import Module
from frontend.nn.norm import LayerNorm
from frontend.ops import common as c
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError


class MultiheadAttention(Module):
    """Attention of `num_heads` heads, each on embed_dim / num_heads features.

    query (L, N, embed_dim), key (S, N, kdim) and value (S, N, vdim), or with the batch N in front
    if `batch_first`, or without it. Gives the output, of query's shape, and the weights (N, L, S),
    averaged over heads unless told otherwise, or None. Parameters have torch's names and layouts.
    Raises ShapeError.
    """

    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {num_heads} heads do not divide {embed_dim}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        joined = self.kdim == self.vdim == embed_dim

        def drawn(rows: int, columns: int) -> Tensor:
            bound = math.sqrt(6.0 / (rows + columns))
            return init.uniform((rows, columns), bound, dtype, device)

        self.register_parameter("in_proj_weight", None)
        self.register_parameter("q_proj_weight", None)
        self.register_parameter("k_proj_weight", None)
        self.register_parameter("v_proj_weight", None)
        if joined:
            self.in_proj_weight = drawn(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = drawn(embed_dim, embed_dim)
            self.k_proj_weight = drawn(embed_dim, self.kdim)
            self.v_proj_weight = drawn(embed_dim, self.vdim)
        zeros = init.constant((3 * embed_dim,), 0.0, dtype, device) if bias else None
        self.register_parameter("in_proj_bias", zeros)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """key_padding_mask (N, S), attn_mask (L, S) or (N*heads, L, S): bool, true hides; or added.

        `is_causal` hides later keys, with or without a mask.
        """
        single = query.ndim == 2
        if single:
            axis = 0 if self.batch_first else 1
            query, key, value = (t.expand_dims(axis) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.expand_dims(0)
        if not self.batch_first:
            if not query.ndim == key.ndim == value.ndim == 3:
                raise ShapeError(f"MultiheadAttention: {query.shape}, {key.shape}, {value.shape}")
            query, key, value = (t.swapaxes(0, 1) for t in (query, key, value))
        self._check(query, key, value)
        q, k, v = self._projected(query, key, value)
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
        weights = F.attention_weights(q, k, mask, is_causal and mask is None)
        shares = weights.dropout(self.dropout) if self.training and self.dropout else weights
        heads = shares.astype(v.dtype) @ v
        batch, length = query.shape[:2]
        out = self.out_proj(heads.swapaxes(1, 2).reshape(batch, length, self.embed_dim))
        if not self.batch_first:
            out = out.swapaxes(0, 1)
        shown = None
        if need_weights:
            shown = shares.mean(1) if average_attn_weights else shares
        if single:
            out = out.squeeze(axis)
            shown = None if shown is None else shown.squeeze(0)
        return out, shown

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """All three (N, length, width)."""
        shapes = query.shape, key.shape, value.shape
        fits = (
            all(len(shape) == 3 for shape in shapes)
            and (query.shape[2], key.shape[2], value.shape[2])
            == (self.embed_dim, self.kdim, self.vdim)
            and query.shape[0] == key.shape[0] == value.shape[0]
            and key.shape[1] == value.shape[1]
        )
        if not fits:
            raise ShapeError(
                f"MultiheadAttention: query, key and value, batch first, are {shapes}; widths "
                f"should be {(self.embed_dim, self.kdim, self.vdim)}, batches and key lengths equal"
            )

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Query, key and value as (N, heads, length, width of a head)."""
        size = self.embed_dim
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.split(size, 0)
        else:
            parts = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = [part for part in parts if part is not None]
        bias = self.in_proj_bias
        biases: list[Tensor | None] = [None] * 3 if bias is None else [*bias.split(size, 0)]
        out = []
        for x, weight, shift in zip((query, key, value), weights, biases, strict=True):
            wide = F.linear(x, weight, shift)
            wide = wide.reshape(*x.shape[:2], self.num_heads, size // self.num_heads)
            out.append(wide.swapaxes(1, 2))
        return out

    def _mask(
        self,
        q: Tensor,
        k: Tensor,
        padding: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """What is added to the scores (N, heads, L, S): one float mask of up to three."""
        batch, heads, length = q.shape[:3]
        keys = k.shape[2]
        parts = []
        if padding is not None:
            if padding.shape != (batch, keys):
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask {padding.shape} should be {batch, keys}"
                )
            parts.append(_added(padding, q).reshape(batch, 1, 1, keys))
        if mask is not None:
            if mask.shape == (batch * heads, length, keys):
                parts.append(_added(mask, q).reshape(batch, heads, length, keys))
            elif mask.shape == (length, keys):
                parts.append(_added(mask, q))
            else:
                raise ShapeError(
                    f"MultiheadAttention: attn_mask {mask.shape} should be {length, keys} or "
                    f"{batch * heads, length, keys}"
                )
        if is_causal and parts:
            later = Tensor.ones(length, keys, dtype=bool, device=q.device).triu(1)
            parts.append(_added(later, q))
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}"


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as floats to add: -inf where a bool one is true."""
    if mask.dtype is dt.bool_:
        return mask.where(-math.inf, Tensor.zeros((), dtype=dt.float32, device=like.device))
    c.needs_float("attention: mask", mask.dtype)
    return mask


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

    (L, N, d_model), or (N, L, d_model) if `batch_first`, to the same; `norm_first` norms before
    each part instead of after it.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
        if isinstance(activation, str) and activation not in known:
            raise OperationError(f"TransformerEncoderLayer: no activation {activation!r}")
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.norm_first = norm_first
        self.activation = known[activation] if isinstance(activation, str) else activation

    def forward(
        self,
        x: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks as in `MultiheadAttention`."""

        def attend(y: Tensor) -> Tensor:
            out, _ = self.self_attn(
                y, y, y, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )
            return self._dropped(self.dropout1, out)

        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + self._fed(self.norm2(x))
        middle: Tensor = self.norm1(x + attend(x))
        last: Tensor = self.norm2(middle + self._fed(middle))
        return last

    def _fed(self, x: Tensor) -> Tensor:
        inner = self._dropped(self.dropout, self.activation(self.linear1(x)))
        return self._dropped(self.dropout2, self.linear2(inner))

    @staticmethod
    def _dropped(dropout: Dropout, x: Tensor) -> Tensor:
        out: Tensor = dropout(x)
        return out
