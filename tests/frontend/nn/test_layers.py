"""Every layer against torch's: values, gradients, buffers, names of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn
from tests.frontend.nn.against_torch import compare, draw, torch

Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]

CASES: list[Case] = [
    ("Linear", (5, 3), {}, (4, 5)),
    ("Linear", (5, 3), {"bias": False}, (2, 3, 5)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, (2, 4, 9)),
    ("Conv1d", (4, 4, 3), {"dilation": 2, "groups": 2, "padding": "same"}, (2, 4, 9)),
    ("Conv2d", (3, 4, 3), {"padding": 1}, (2, 3, 6, 5)),
    ("Conv2d", (2, 4, (3, 2)), {"stride": (2, 1), "groups": 2, "bias": False}, (2, 2, 7, 5)),
    ("Conv2d", (1, 2, 3), {"padding": 1, "padding_mode": "reflect"}, (1, 1, 5, 5)),
    ("Conv2d", (2, 3, 3), {}, (2, 5, 4)),
    ("Conv3d", (2, 3, 2), {"padding": 1}, (1, 2, 3, 4, 3)),
    ("ConvTranspose1d", (3, 4, 3), {"stride": 2, "output_padding": 1}, (2, 3, 5)),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 4, 3)),
    ("ConvTranspose3d", (2, 2, 2), {"stride": 2}, (1, 2, 2, 3, 2)),
    ("LayerNorm", (6,), {}, (3, 6)),
    ("LayerNorm", ((4, 6),), {"bias": False}, (3, 4, 6)),
    ("RMSNorm", (6,), {}, (3, 4, 6)),
    ("RMSNorm", (6,), {"eps": 1e-3}, (3, 6)),
    ("GroupNorm", (2, 6), {}, (3, 6, 4)),
    ("BatchNorm1d", (5,), {}, (8, 5)),
    ("BatchNorm1d", (5,), {"momentum": None}, (4, 5, 3)),
    ("BatchNorm2d", (3,), {}, (4, 3, 5, 2)),
    ("BatchNorm2d", (3,), {"affine": False, "track_running_stats": False}, (4, 3, 2, 2)),
    ("BatchNorm3d", (2,), {"momentum": 0.3}, (2, 2, 3, 2, 2)),
    ("InstanceNorm1d", (3,), {"affine": True}, (2, 3, 7)),
    ("InstanceNorm2d", (3,), {}, (2, 3, 4, 5)),
    ("InstanceNorm2d", (3,), {"track_running_stats": True, "affine": True}, (2, 3, 4, 5)),
    ("PReLU", (), {}, (3, 4)),
    ("PReLU", (4,), {}, (3, 4, 2)),
    ("MaxPool1d", (2,), {}, (2, 3, 8)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (2, 3, 7, 6)),
    ("MaxPool2d", ((2, 3),), {"ceil_mode": True}, (1, 2, 5, 7)),
    ("AvgPool1d", (3,), {"stride": 1}, (2, 3, 8)),
    ("AvgPool2d", (2,), {"padding": 1, "count_include_pad": False}, (2, 2, 6, 5)),
    ("AdaptiveAvgPool2d", ((3, 2),), {}, (2, 2, 5, 4)),
    ("AdaptiveMaxPool2d", ((2, 3),), {}, (2, 2, 5, 6)),
    ("Upsample", (), {"scale_factor": 2, "mode": "nearest"}, (1, 2, 3, 4)),
    ("Upsample", ((5, 6),), {"mode": "bilinear"}, (1, 2, 3, 4)),
    ("PixelShuffle", (2,), {}, (1, 8, 2, 3)),
    ("Flatten", (), {}, (2, 3, 4)),
]


def name_of(case: Case) -> str:
    kind, args, options, shape = case
    inside = [*map(repr, args), *(f"{k}={v!r}" for k, v in options.items())]
    return f"{kind}({', '.join(inside)}) of {'x'.join(map(str, shape))}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_layer_does_what_torch_does(case: Case) -> None:
    kind, args, options, shape = case
    torch.manual_seed(3)
    theirs = getattr(torch.nn, kind)(*args, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():  # ones and zeros would hide a mistake
            parameter += 0.1 * torch.randn_like(parameter)
    compare(getattr(nn, kind)(*args, **options), theirs, [draw(1, *shape)])


@pytest.mark.parametrize(
    ("kind", "shape"), [("BatchNorm1d", (6, 4)), ("BatchNorm2d", (3, 4, 2, 2))]
)
def test_batch_norm_follows_batches_and_uses_what_it_learned(
    kind: str, shape: tuple[int, ...]
) -> None:
    ours, theirs = getattr(nn, kind)(4), getattr(torch.nn, kind)(4)
    for seed in range(3):
        x = draw(seed, *shape) * 2.0 + 1.0
        ours(Tensor(x))
        theirs(torch.from_numpy(x))
    ours.eval()
    theirs.eval()
    compare(ours, theirs, [draw(9, *shape)])
    state = theirs.state_dict()
    for name, value in ours.state_dict().items():
        np.testing.assert_allclose(value.numpy(), state[name].numpy(), rtol=1e-5, atol=1e-6)


def test_running_statistics_do_not_pile_up_uncomputed() -> None:
    """Their graph would grow with each batch if nobody ever asked for them."""
    norm = nn.BatchNorm1d(3)
    x = Tensor(draw(1, 4, 3))
    for _ in range(40):
        norm(x)
    mean = norm.running_mean
    assert mean is not None
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 40
    np.testing.assert_allclose(
        mean.numpy(), (1 - 0.9**40) * x.numpy().mean(0), rtol=1e-4, atol=1e-5
    )


def test_an_embedding_gives_rows_and_takes_gradients_back_to_them() -> None:
    indices = np.array([[0, 3, 3], [5, 1, 0]])
    compare(nn.Embedding(6, 4), torch.nn.Embedding(6, 4), [indices])
    padded = torch.nn.Embedding(6, 4, padding_idx=3)
    compare(nn.Embedding(6, 4, padding_idx=3), padded, [indices])


def test_a_padding_row_starts_at_zero_and_a_pretrained_table_is_frozen() -> None:
    assert nn.Embedding(4, 3, padding_idx=-1).weight.numpy()[3].tolist() == [0, 0, 0]
    frozen = nn.Embedding.from_pretrained(Tensor(draw(1, 4, 3)))
    assert list(frozen.state_dict()) == ["weight"]
    assert not frozen.weight.requires_grad
    assert frozen(Tensor([1])).numpy().tolist() == [draw(1, 4, 3)[1].tolist()]


def test_bilinear_does_what_torch_does() -> None:
    compare(nn.Bilinear(3, 4, 2), torch.nn.Bilinear(3, 4, 2), [draw(1, 5, 3), draw(2, 5, 4)])


RECURRENT: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("RNN", {}, (3, 2, 4)),
    ("RNN", {"nonlinearity": "relu", "bias": False}, (3, 4)),
    ("GRU", {"batch_first": True}, (2, 3, 4)),
    ("GRU", {"bidirectional": True}, (3, 2, 4)),
    ("LSTM", {}, (3, 2, 4)),
    ("LSTM", {"num_layers": 2, "bidirectional": True}, (2, 2, 4)),
]


@pytest.mark.parametrize(("kind", "options", "shape"), RECURRENT)
def test_a_recurrent_layer_does_what_torch_does(
    kind: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    theirs = getattr(torch.nn, kind)(4, 3, **options)
    compare(getattr(nn, kind)(4, 3, **options), theirs, [draw(1, *shape)])


def test_a_recurrent_layer_goes_on_from_a_state() -> None:
    ours, theirs = nn.LSTM(3, 2), torch.nn.LSTM(3, 2)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x, h, c = draw(1, 2, 4, 3), draw(2, 1, 4, 2), draw(3, 1, 4, 2)
    out, (last_h, last_c) = ours(Tensor(x), (Tensor(h), Tensor(c)))
    want, (want_h, want_c) = theirs(torch.from_numpy(x), (torch.from_numpy(h), torch.from_numpy(c)))
    out.realize(last_h, last_c)
    for got, expected in ((out, want), (last_h, want_h), (last_c, want_c)):
        np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_does_what_torch_does(kind: str) -> None:
    compare(getattr(nn, kind)(4, 3), getattr(torch.nn, kind)(4, 3), [draw(1, 2, 4)])


CAUSAL = np.triu(np.ones((3, 3), bool), 1)

ATTENTION: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {}, {}),
    ("batch first, a weight for each head", {"batch_first": True}, {"average_attn_weights": False}),
    ("a bool mask", {}, {"attn_mask": CAUSAL}),
    ("a float mask", {"bias": False}, {"attn_mask": draw(5, 3, 3)}),
    ("a mask for each head", {}, {"attn_mask": draw(5, 4, 3, 3)}),
    (
        "padding",
        {"batch_first": True},
        {"key_padding_mask": np.array([[False, False, True], [False, False, False]])},
    ),
]


@pytest.mark.parametrize(
    ("options", "masks"), [c[1:] for c in ATTENTION], ids=[c[0] for c in ATTENTION]
)
def test_attention_of_several_heads_does_what_torch_does(
    options: dict[str, Any], masks: dict[str, Any]
) -> None:
    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(4, 2, **options)
    shape = (2, 3, 4) if options.get("batch_first") else (3, 2, 4)
    inputs = [draw(i, *shape) for i in range(3)]
    compare(nn.MultiheadAttention(4, 2, **options), theirs, inputs, **masks)


def test_attention_takes_keys_and_values_of_other_widths() -> None:
    options: dict[str, Any] = {"kdim": 3, "vdim": 5, "batch_first": True}
    theirs = torch.nn.MultiheadAttention(4, 2, **options)
    inputs = [draw(1, 2, 3, 4), draw(2, 2, 6, 3), draw(3, 2, 6, 5)]
    compare(nn.MultiheadAttention(4, 2, **options), theirs, inputs, need_weights=False)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_transformer_layer_does_what_torch_does(norm_first: bool) -> None:
    options: dict[str, Any] = {
        "dim_feedforward": 6,
        "dropout": 0.0,
        "batch_first": True,
        "norm_first": norm_first,
    }
    theirs = torch.nn.TransformerEncoderLayer(4, 2, **options)
    ours = nn.TransformerEncoderLayer(4, 2, **options)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = draw(1, 2, 3, 4)
    np.testing.assert_allclose(
        ours(Tensor(x)).numpy(), theirs(torch.from_numpy(x)).detach().numpy(), atol=1e-5
    )


ACTIVATIONS = [
    "ReLU", "ReLU6", "Sigmoid", "Tanh", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Softplus",
    "LogSigmoid", "Softsign", "Tanhshrink", "SELU", "GELU", "LeakyReLU", "ELU", "CELU", "Hardtanh",
    "Softshrink", "Hardshrink", "GLU", "Softmax", "LogSoftmax",
]  # fmt: skip


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_does_what_torch_does(kind: str) -> None:
    options = {"dim": -1} if "Soft" in kind and kind.endswith("max") else {}
    x = draw(1, 5, 8) * 3.0
    compare(getattr(nn, kind)(), getattr(torch.nn, kind)(**options), [x])


def test_dropout_drops_a_share_and_keeps_the_mean() -> None:
    Tensor.manual_seed(5)
    x = Tensor.ones(100, 100)
    layer = nn.Dropout(0.25)
    out = layer(x).numpy()
    assert set(np.unique(out).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(float((out == 0).mean()) - 0.25) < 0.02
    assert layer.eval()(x) is x


def test_channel_dropout_drops_whole_channels() -> None:
    Tensor.manual_seed(5)
    out = nn.Dropout2d(0.5)(Tensor.ones(16, 8, 2, 2)).numpy()
    whole = out.reshape(16, 8, 4)
    assert np.all(whole == whole[..., :1])
    assert 0.3 < float((whole == 0).mean()) < 0.7


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(40, 60),
        lambda: nn.Conv2d(8, 16, 3),
        lambda: nn.ConvTranspose2d(8, 16, 3),
        lambda: nn.LSTM(20, 30),
    ],
)
def test_first_weights_are_spread_as_torchs_are(make: Callable[[], nn.Module]) -> None:
    Tensor.manual_seed(1)
    ours = make()
    kind = type(ours).__name__
    sizes: dict[str, Any] = {
        "Linear": (40, 60), "Conv2d": (8, 16, 3), "ConvTranspose2d": (8, 16, 3), "LSTM": (20, 30),
    }  # fmt: skip
    theirs = dict(getattr(torch.nn, kind)(*sizes[kind]).named_parameters())
    for name, parameter in ours.named_parameters():
        value, other = parameter.numpy(), theirs[name].detach().numpy()
        assert value.shape == other.shape
        assert abs(float(value.mean())) < 5 * float(other.std()) / np.sqrt(value.size)
        assert float(np.abs(value).max()) <= float(np.abs(other).max()) * 1.3
        if value.size > 500:  # of fewer numbers the spread says little
            assert 0.9 < float(value.std()) / float(other.std()) < 1.1
