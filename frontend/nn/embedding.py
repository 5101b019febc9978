"""Tables of vectors."""

from __future__ import annotations

from typing import Self

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module, Parameter
from frontend.tensor import Tensor
from rawgpu.errors import IndexOutOfRange, ShapeError


class Embedding(Module):
    """Row i of weight (num_embeddings, embedding_dim) for each index i: (...) to (..., dim).

    Rows start standard normal; row `padding_idx` is zero and is not trained. Indices outside the
    table give zeros. Raises DTypeError for indices that are no integers.
    """

    weight: Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        weight = init.normal((num_embeddings, embedding_dim), 1.0, dtype, device)
        if self.padding_idx is not None:
            rows = Tensor.arange(num_embeddings, device=device).reshape(-1, 1)
            weight = Parameter((rows == self.padding_idx).where(0.0, weight.detach()))
        self.weight = weight

    @classmethod
    def from_pretrained(
        cls, table: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Self:
        """An embedding with the rows of `table` (rows, dim), which is not trained if `freeze`."""
        if table.ndim != 2:
            raise ShapeError(f"Embedding.from_pretrained: {table.shape} is no table of rows")
        out = cls.__new__(cls)
        out.num_embeddings, out.embedding_dim = table.shape
        out.padding_idx = _row(padding_idx, out.num_embeddings)
        out.register_parameter("weight", Parameter(table, requires_grad=not freeze))
        return out

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _row(index: int | None, rows: int) -> int | None:
    if index is None:
        return None
    if not -rows <= index < rows:
        raise IndexOutOfRange(f"Embedding: padding_idx {index} is outside {rows} rows")
    return index % rows
