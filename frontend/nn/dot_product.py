"""Scaled dot-product attention: softmax of the products of queries and keys, times values."""

from __future__ import annotations

import math

from frontend import dtype as dt
from frontend.ops import common as c
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + attn_mask) @ value.

    query (..., heads, L, E), key (..., heads, S, E), value (..., heads, S, V) give (..., heads, L,
    V). attn_mask, broadcast to (..., L, S): bool, true where a query sees a key, or floats to add.
    `is_causal`: query i sees keys up to i. `enable_gqa`: query may have a multiple of key's heads.
    A query that sees no key gives zeros. Raises ShapeError, OperationError.
    """
    c.only_tensors("attention", value=value)
    weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    if dropout_p:
        weights = weights.dropout(dropout_p)
    if value.ndim < 2 or key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"attention: key {key.shape} and value {value.shape} differ in length")
    if enable_gqa:
        value = _repeat_heads(value, query)
    return weights.astype(value.dtype) @ value


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The weights (..., L, S) of `scaled_dot_product_attention`, in float32 at least."""
    c.only_tensors("attention", query=query, key=key)
    c.tensors_or_none("attention", mask=mask)
    if query.ndim < 2 or key.ndim < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"attention: query {query.shape} and key {key.shape} differ in width")
    if mask is not None and is_causal:
        raise OperationError("attention: a mask and is_causal", hint="put both into the mask")
    if enable_gqa:
        key = _repeat_heads(key, query)
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    wide = dt.accumulator(query.dtype)
    scores = query.astype(wide) @ key.astype(wide).matrix_transpose() * factor
    if is_causal:
        rows, columns = scores.shape[-2:]
        seen = Tensor.ones(rows, columns, dtype=bool, device=query.device).tril()
        return seen.where(scores, -math.inf).softmax(-1)  # every query sees the first key
    if mask is None:
        return scores.softmax(-1)
    c.broadcast_shapes("attention: mask", mask.shape, scores.shape)
    if mask.dtype is dt.bool_:
        return _safe_softmax(mask.where(scores, -math.inf))
    return _safe_softmax(scores + mask.astype(wide))


def _safe_softmax(x: Tensor) -> Tensor:
    """softmax over the last axis; rows of nothing but -inf give zeros instead of NaN."""
    top = x.max(-1, keepdims=True).detach()
    top = (top == -math.inf).where(0.0, top)
    weights = (x - top).exp()
    total = weights.sum(-1, keepdims=True)
    return weights / (total == 0.0).where(1.0, total)


def _repeat_heads(x: Tensor, query: Tensor) -> Tensor:
    if x.ndim < 3 or query.ndim < 3 or x.shape[-3] == 0 or query.shape[-3] % x.shape[-3]:
        raise ShapeError(f"attention: the heads of {x.shape} do not divide those of {query.shape}")
    return x.repeat(query.shape[-3] // x.shape[-3], x.ndim - 3)
