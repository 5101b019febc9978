"""Recurrent networks: RNN, LSTM and GRU, as cells and as layers over sequences.

A layer takes (L, N, input_size), or (N, L, input_size) if `batch_first`, or (L, input_size) for one
sequence, and gives the outputs of its last layer and the last states of all. The products with the
inputs are one matrix product for all times; the steps are unrolled into the graph, so a long
sequence is a long program.

Names and layouts of parameters are torch's: the gates of an LSTM are i, f, g, o, those of a GRU r,
z, n, stacked along axis 0.
"""

from __future__ import annotations

from typing import Any

from frontend import dtype as dt
from frontend.nn import functional as F
from frontend.nn import init
from frontend.nn.module import Module
from frontend.ops import movement
from frontend.tensor import Tensor
from rawgpu.errors import OperationError, ShapeError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _rnn_step(x: Tensor, state: list[Tensor], hidden: Tensor, activation: str) -> list[Tensor]:
    total = x + hidden
    return [total.tanh() if activation == "tanh" else total.relu()]


def _gru_step(x: Tensor, state: list[Tensor], hidden: Tensor, activation: str) -> list[Tensor]:
    size = state[0].shape[-1]
    xr, xz, xn = x.split(size, -1)
    hr, hz, hn = hidden.split(size, -1)
    reset, keep = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    new = (xn + reset * hn).tanh()
    return [new + keep * (state[0] - new)]


def _lstm_step(x: Tensor, state: list[Tensor], hidden: Tensor, activation: str) -> list[Tensor]:
    i, f, g, o = (x + hidden).split(state[0].shape[-1], -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return [o.sigmoid() * cell.tanh(), cell]


STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}
"""From the two products of a step, with biases, and the states to the new states."""


class _Recurrent(Module):
    """What the three layers share; `kind` is a key of the tables above."""

    kind = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if num_layers < 1 or hidden_size < 1:
            raise ShapeError(f"{self.kind}: {num_layers} layers of {hidden_size} units")
        if not 0 <= dropout <= 1:
            raise OperationError(f"{self.kind}: {dropout} is no probability")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.activation = "tanh"
        rows = GATES[self.kind] * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * self._directions
            for suffix in self._suffixes(layer):
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, hidden_size)}
                biases = {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                for name, shape in {**shapes, **biases}.items():
                    value = init.by_fan_in(shape, hidden_size, dtype, device)
                    self.register_parameter(name + suffix, value)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def _run(self, x: Tensor, initial: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """x (L, N, width) and states (layers*directions, N, hidden) to outputs and last states."""
        last: list[list[Tensor]] = []
        for layer in range(self.num_layers):
            outs = []
            for d, suffix in enumerate(self._suffixes(layer)):
                place = layer * self._directions + d
                out, final = self._scan(x, [s[place] for s in initial], suffix, backward=d == 1)
                outs.append(out)
                last.append(final)
            x = outs[0] if len(outs) == 1 else movement.concat(outs, -1)
            if layer + 1 < self.num_layers and self.training:
                x = x.dropout(self.dropout)
        return x, [movement.stack(list(parts)) for parts in zip(*last, strict=True)]

    def _scan(
        self, x: Tensor, states: list[Tensor], suffix: str, backward: bool
    ) -> tuple[Tensor, list[Tensor]]:
        weight_ih, weight_hh = (
            getattr(self, "weight_ih" + suffix),
            getattr(self, "weight_hh" + suffix),
        )
        bias_ih = getattr(self, "bias_ih" + suffix) if self.bias else None
        bias_hh = getattr(self, "bias_hh" + suffix) if self.bias else None
        inputs = F.linear(x, weight_ih, bias_ih).unbind(0)
        outs = []
        for part in reversed(inputs) if backward else inputs:
            hidden = F.linear(states[0], weight_hh, bias_hh)
            states = STEPS[self.kind](part, states, hidden, self.activation)
            outs.append(states[0])
        return movement.stack(outs[::-1] if backward else outs), states

    def _prepared(self, x: Tensor, given: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor], bool]:
        """x as (L, N, width), the first states, and whether there was no batch axis."""
        single = x.ndim == 2
        if single:
            x, given = x.expand_dims(1), tuple(s.expand_dims(1) for s in given)
        elif self.batch_first and x.ndim == 3:
            x = x.swapaxes(0, 1)
        if x.ndim != 3 or x.shape[2] != self.input_size or x.shape[0] == 0:
            raise ShapeError(
                f"{self.kind}: input {x.shape}, times first, should be (L, N, {self.input_size}), "
                "L at least 1"
            )
        shape = (self.num_layers * self._directions, x.shape[1], self.hidden_size)
        for state in given:
            if state.shape != shape:
                raise ShapeError(f"{self.kind}: a state of shape {state.shape} should be {shape}")
        count = 2 if self.kind == "LSTM" else 1
        zeros = Tensor.zeros(shape, dtype=x.dtype, device=x.device)
        return x, list(given) or [zeros] * count, single

    def _finished(self, out: Tensor, states: list[Tensor], single: bool) -> Any:
        if single:
            return out.squeeze(1), [s.squeeze(1) for s in states]
        return (out.swapaxes(0, 1) if self.batch_first else out), states

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class RNN(_Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. Gives (outputs, last h)."""

    kind = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise OperationError(f"RNN: nonlinearity is tanh or relu, not {nonlinearity!r}")
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device,
            dtype,
        )
        self.activation = nonlinearity

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, states, single = self._prepared(x, () if h is None else (h,))
        out, last = self._finished(*self._run(x, states), single)
        return out, last[0]


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al., 2014). Gives (outputs, last h). See the module."""

    kind = "GRU"

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, states, single = self._prepared(x, () if h is None else (h,))
        out, last = self._finished(*self._run(x, states), single)
        return out, last[0]


class LSTM(_Recurrent):
    """Long short-term memory (1997). Gives (outputs, (last h, last c)). See the module."""

    kind = "LSTM"

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x, states, single = self._prepared(x, () if state is None else tuple(state))
        out, last = self._finished(*self._run(x, states), single)
        return out, (last[0], last[1])


# -- one step


class _Cell(Module):
    """One step of one layer: parameters weight_ih, weight_hh, bias_ih, bias_hh."""

    kind = ""
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.activation = "tanh"
        rows = GATES[self.kind] * hidden_size
        self.weight_ih = init.by_fan_in((rows, input_size), hidden_size, dtype, device)
        self.weight_hh = init.by_fan_in((rows, hidden_size), hidden_size, dtype, device)
        for name in ("bias_ih", "bias_hh"):
            value = init.by_fan_in((rows,), hidden_size, dtype, device) if bias else None
            self.register_parameter(name, value)

    def _step(self, x: Tensor, given: tuple[Tensor, ...]) -> list[Tensor]:
        name = f"{self.kind}Cell"
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: input {x.shape} should be (N, {self.input_size})")
        shape = (*x.shape[:-1], self.hidden_size)
        for state in given:
            if state.shape != shape:
                raise ShapeError(f"{name}: a state of shape {state.shape} should be {shape}")
        zeros = Tensor.zeros(shape, dtype=x.dtype, device=x.device)
        states = list(given) or [zeros] * (2 if self.kind == "LSTM" else 1)
        inputs = F.linear(x, self.weight_ih, self.bias_ih)
        hidden = F.linear(states[0], self.weight_hh, self.bias_hh)
        return STEPS[self.kind](inputs, states, hidden, self.activation)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_Cell):
    """(N, input_size) and h (N, hidden_size), zeros if None, give the new h."""

    kind = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: object = dt.DEFAULT_FLOAT,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise OperationError(f"RNNCell: nonlinearity is tanh or relu, not {nonlinearity!r}")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.activation = nonlinearity

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._step(x, () if h is None else (h,))[0]


class GRUCell(_Cell):
    """(N, input_size) and h (N, hidden_size), zeros if None, give the new h."""

    kind = "GRU"

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._step(x, () if h is None else (h,))[0]


class LSTMCell(_Cell):
    """(N, input_size) and (h, c), each (N, hidden_size), zeros if None, give the new (h, c)."""

    kind = "LSTM"

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, cell = self._step(x, () if state is None else tuple(state))
        return h, cell
