"""What a module is made of, how it is named, saved, loaded, moved, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn, optim, state
from frontend import dtype as dt
from rawgpu.errors import (
    BadSafetensors,
    DeviceNotFound,
    DTypeError,
    IndexOutOfRange,
    OperationError,
    RawGpuError,
    ShapeError,
)


class Block(nn.Module):
    """A module as people write them."""

    def __init__(self) -> None:
        self.scale = nn.Parameter([2.0, 3.0])
        self.inner = nn.Linear(2, 2)
        self.register_buffer("offset", Tensor([1.0, 1.0]))
        self.register_buffer("scratch", Tensor([0.0]), persistent=False)
        self.table = Tensor([5.0])  # no parameter, no buffer
        self.hidden = 3

    offset: Tensor
    scratch: Tensor

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) * self.scale + self.offset
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = Block()
        self.rest = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3))
        self.shared = self.first.inner

    def forward(self, x: Tensor) -> Any:
        return self.rest(self.first(x))


def test_names_come_from_attributes_and_shared_parts_count_once() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "first.scale", "first.inner.weight", "first.inner.bias",
        "rest.0.weight", "rest.0.bias", "rest.2.weight", "rest.2.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers()] == [
        "first.offset", "first.scratch",
        "rest.2.running_mean", "rest.2.running_var", "rest.2.num_batches_tracked",
    ]  # fmt: skip
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "first.inner", "rest", "rest.0", "rest.1", "rest.2",
    ]  # fmt: skip


def test_the_state_dict_has_shared_parts_twice_and_no_scratch() -> None:
    names = list(Net().state_dict())
    assert "shared.weight" in names
    assert "first.inner.weight" in names
    assert "first.offset" in names
    assert "first.scratch" not in names
    assert "first.table" not in names


def test_state_goes_from_one_module_to_another() -> None:
    one, other = Net(), Net()
    x = Tensor([[1.0, -1.0], [2.0, 0.5], [0.1, 3.0]])
    other.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(one(x).numpy(), other(x).numpy())


def test_a_state_dict_holds_values_that_training_does_not_change() -> None:
    layer = nn.Linear(2, 1)
    before = layer.state_dict()
    kept = before["weight"].numpy()
    optimizer = optim.SGD(layer.parameters(), lr=1.0)
    layer(Tensor([[1.0, 2.0]])).sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(before["weight"].numpy(), kept)
    np.testing.assert_allclose(layer.weight.numpy(), kept - [[1.0, 2.0]], rtol=1e-6)


def test_state_goes_through_a_file(tmp_path: Path) -> None:
    net, again = Net(), Net()
    state.save(net, tmp_path / "net.safetensors", {"made": "by a test"})
    state.load(again, tmp_path / "net.safetensors")
    for (name, a), (_, b) in zip(net.state_dict().items(), again.state_dict().items(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(BadSafetensors):
        state.load(again, tmp_path / "bad.safetensors")


def test_a_state_dict_that_does_not_fit_changes_nothing() -> None:
    layer = nn.Linear(2, 3)
    kept = layer.weight.numpy()
    with pytest.raises(OperationError, match=r"missing bias.*unexpected extra"):
        layer.load_state_dict({"weight": np.zeros((3, 2)), "extra": np.zeros(1)})
    with pytest.raises(ShapeError, match="'bias'"):
        layer.load_state_dict({"weight": np.zeros((3, 2)), "bias": np.zeros(2)})
    np.testing.assert_array_equal(layer.weight.numpy(), kept)
    missing, unexpected = layer.load_state_dict(
        {"weight": np.zeros((3, 2)), "extra": np.zeros(1)}, strict=False
    )
    assert (missing, unexpected) == (["bias"], ["extra"])
    assert layer.weight.numpy().tolist() == [[0.0, 0.0]] * 3
    assert layer.weight.requires_grad
    assert layer.weight.is_leaf


def test_train_and_eval_reach_every_part() -> None:
    net = Net()
    assert all(module.training for module in net.modules())
    assert not any(module.training for module in net.eval().modules())
    assert net.train() is net


def test_a_network_becomes_another_dtype_and_stays_trainable() -> None:
    net = Net().to("float64")
    kinds = {name: value.dtype for name, value in net.state_dict().items()}
    assert kinds.pop("rest.2.num_batches_tracked") is dt.int64
    assert set(kinds.values()) == {dt.float64}
    x = Tensor([[1.0, -1.0], [2.0, 0.5]], dtype="float64")
    net(x).sum().backward()
    grad = net.first.scale.grad
    assert grad is not None
    assert grad.dtype is dt.float64
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())


def test_parameters_are_drawn_when_made_and_computed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    whole = Tensor.realize
    monkeypatch.setattr(
        Tensor, "realize", lambda self, *others: calls.append(len(others)) or whole(self, *others)
    )
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert calls == []
    assert not net[0].weight.is_realized  # type: ignore[union-attr]
    net(Tensor.ones(1, 2))
    assert calls == [3]
    net(Tensor.ones(1, 2))
    assert calls == [3]


def test_the_same_seed_draws_the_same_network() -> None:
    def made() -> list[Any]:
        Tensor.manual_seed(4)
        net = nn.Sequential(nn.Linear(2, 3), nn.Embedding(3, 2))
        return [value.tolist() for value in net.state_dict().values()]

    assert made() == made()


def test_a_copy_has_parameters_of_its_own() -> None:
    net = Net()
    other = copy.deepcopy(net)
    assert other.shared is other.first.inner
    optimizer = optim.SGD(other.parameters(), lr=1.0)
    assert all(p.is_realized and p.is_leaf and p.requires_grad for p in other.parameters())
    other.first(Tensor([[1.0, 2.0], [3.0, -1.0]])).sum().backward()
    optimizer.step()
    assert all(p.grad is None for p in net.parameters())
    assert other.first.scale.tolist() != net.first.scale.tolist() == [2.0, 3.0]


def test_an_attribute_may_be_replaced_or_removed() -> None:
    block = Block()
    block.scale = nn.Parameter([7.0, 7.0])
    assert dict(block.named_parameters())["scale"].tolist() == [7.0, 7.0]
    block.offset = Tensor([9.0, 9.0])
    assert block.state_dict()["offset"].tolist() == [9.0, 9.0]
    block.register_parameter("scale", None)
    assert "scale" not in block.state_dict()
    del block.inner
    assert [name for name, _ in block.named_children()] == []


def test_frozen_parameters_stay_parameters() -> None:
    layer = nn.Linear(2, 2).requires_grad_(False)
    assert len(list(layer.parameters())) == 2
    assert not layer(Tensor.ones(1, 2)).requires_grad
    with pytest.raises(OperationError, match="no leaf that requires a gradient"):
        optim.SGD(layer.parameters())


def test_containers_are_lists_and_dicts_of_modules() -> None:
    chain = nn.Sequential({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    assert list(chain.state_dict()) == ["a.weight", "a.bias"]
    chain.append(nn.Linear(3, 1))
    assert len(chain) == 3
    assert isinstance(chain[1], nn.ReLU)
    assert len(chain[:2]) == 2
    assert chain(Tensor.ones(4, 2)).shape == (4, 1)
    chain[-1] = nn.Linear(3, 5)
    assert chain(Tensor.ones(4, 2)).shape == (4, 5)
    listed = nn.ModuleList([nn.Linear(1, 1)]).append(nn.Identity())
    assert list(listed.state_dict()) == ["0.weight", "0.bias"]
    assert isinstance(listed[-1], nn.Identity)
    named = nn.ModuleDict({"x": nn.Linear(1, 1)})
    assert "x" in named
    assert list(named.keys()) == ["x"]
    assert list(nn.ParameterList([nn.Parameter([1.0])]).state_dict()) == ["0"]


def test_repr_shows_the_parts() -> None:
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU())))
    assert "(0): Linear(2, 3, bias=True)" in text
    assert "    (0): ReLU()" in text


def test_first_values_in_place() -> None:
    Tensor.manual_seed(1)
    weight = nn.Parameter(Tensor.zeros(30, 20))
    assert nn.init.fans((4, 3, 2, 2)) == (12, 16)
    nn.init.kaiming_uniform_(weight, nonlinearity="relu")
    bound = (6 / 20) ** 0.5
    assert 0.9 * bound < float(np.abs(weight.numpy()).max()) <= bound
    nn.init.xavier_normal_(weight)
    assert abs(float(weight.numpy().std()) - (2 / 50) ** 0.5) < 0.02
    nn.init.constant_(weight, 3.0)
    assert weight.numpy().min() == weight.numpy().max() == 3.0
    nn.init.eye_(weight)
    assert weight.numpy().sum() == 20
    assert weight.is_leaf


REFUSED: list[tuple[Callable[[], object], type[RawGpuError], str]] = [
    (lambda: nn.Linear(2, 3)(Tensor.ones(4)), ShapeError, "(4,)"),
    (lambda: nn.Conv2d(2, 3, 3)(Tensor.ones(1, 1, 5, 5)), ShapeError, "(1, 1, 5, 5)"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ShapeError, "2 groups"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ShapeError, "kernel_size"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="odd"), OperationError, "odd"),
    (lambda: nn.BatchNorm2d(3)(Tensor.ones(2, 3)), ShapeError, "(2, 3)"),
    (lambda: nn.BatchNorm1d(3)(Tensor.ones(1, 3)), ShapeError, "one value"),
    (lambda: nn.GroupNorm(2, 3), ShapeError, "3 channels"),
    (lambda: nn.MaxPool2d(2)(Tensor.ones(2, 2)), ShapeError, "(2, 2)"),
    (lambda: nn.LSTM(2, 3)(Tensor.ones(4, 1, 3)), ShapeError, "(4, 1, 3)"),
    (
        lambda: nn.GRU(2, 3)(Tensor.ones(4, 1, 2), Tensor.ones(1, 1, 2)),
        ShapeError,
        "(1, 1, 2)",
    ),
    (lambda: nn.MultiheadAttention(5, 2), ShapeError, "2 heads"),
    (lambda: nn.MultiheadAttention(4, 2)(*[Tensor.ones(1, 1, 3)] * 3), ShapeError, "widths"),
    (lambda: nn.Embedding(4, 2, padding_idx=4), IndexOutOfRange, "4 rows"),
    (lambda: nn.Dropout(-0.1), OperationError, "-0.1"),
    (lambda: nn.Sequential(nn.ReLU, nn.ReLU()), RawGpuError, "Sequential"),  # type: ignore[arg-type]
    (lambda: nn.Sequential()[0], IndexOutOfRange, "0 modules"),
    (lambda: nn.Linear(2, 2).to("int8"), DTypeError, "int8"),
    (lambda: nn.Linear(2, 2).to("nothing:7"), DeviceNotFound, "nothing:7"),
    (lambda: nn.Linear(2, 2).register_buffer("a.b", None), OperationError, "a.b"),
    (lambda: nn.init.xavier_uniform_(nn.Parameter([1.0])), ShapeError, "(1,)"),
    (lambda: nn.init.gain("linaer"), OperationError, "linaer"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_what_cannot_be_is_refused_at_the_call(
    call: Callable[[], object], error: type[RawGpuError], says: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)
