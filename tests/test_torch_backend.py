"""`torch.compile(model, backend="autotune")`: right answers for every batch and all weights; what it leaves alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="extra `torch`")
pytest.importorskip("onnxscript", reason="extra `torch`")

from autotune.torch_backend import TorchWarning, autotune_backend  # noqa: E402

OPTIONS = {"target": "native -num-cores=1", "database": False}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def network() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)
    ).eval()


def compiled(model: Any) -> Any:
    return torch.compile(model, backend=autotune_backend, options=OPTIONS)


def test_every_batch_is_a_program_of_its_own() -> None:
    model = network()
    ours = compiled(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", TorchWarning)
        for batch in (1, 2, 3, 2):
            x = torch.randn(batch, 3, 4, 4)
            torch.testing.assert_close(ours(x), model(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours(x.to(memory_format=torch.channels_last)), model(x), rtol=1e-4, atol=1e-5)


def test_changed_weights_count() -> None:
    model, x = network(), torch.randn(2, 3, 4, 4)
    ours = compiled(model)
    with torch.no_grad():
        before = ours(x)
        model[0].weight.mul_(2)
        model[4].bias.add_(1)
        torch.testing.assert_close(ours(x), model(x), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(ours(x), before)


def test_several_outputs_and_numbers_among_them() -> None:
    def parts(x: Any) -> tuple[Any, int, Any]:
        return x.relu(), x.shape[0], x.sum(dim=1)

    ours = compiled(parts)
    for rows in (2, 5, 7):
        x = torch.randn(rows, 4)
        for found, wanted in zip(ours(x), parts(x)):
            torch.testing.assert_close(found, wanted)


def test_half_floats() -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    found = compiled(torch.nn.functional.relu)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, x.relu())


def test_gradients_stay_with_pytorch() -> None:
    model, x = network(), torch.randn(2, 3, 4, 4)
    with pytest.warns(TorchWarning, match=r"gradients are wanted: call the model under torch\.no_grad"):
        found = compiled(model)(x)
    found.sum().backward()
    assert model[0].weight.grad is not None


def test_what_changes_in_place_stays_with_pytorch() -> None:
    norm, same = torch.nn.BatchNorm2d(3).train(), torch.nn.BatchNorm2d(3).train()
    ours, x = compiled(norm), torch.randn(4, 3, 2, 2)
    with torch.no_grad():
        with pytest.warns(TorchWarning, match="changes its inputs or its weights in place"):
            ours(x)
        ours(x + 5)
        same(x)
        same(x + 5)
    torch.testing.assert_close(norm.running_mean, same.running_mean)


def test_what_cannot_be_exported_stays_with_pytorch() -> None:
    def special(x: Any) -> Any:
        return torch.special.bessel_j0(x)

    x = torch.randn(4)
    with pytest.warns(TorchWarning, match="PyTorch runs a part of the model: torch.onnx cannot export it"):
        torch.testing.assert_close(compiled(special)(x), special(x))


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(Exception, match="no option speed of backend autotune; known: target, database"):
        torch.compile(network(), backend=autotune_backend, options={"speed": 11})(torch.randn(1, 3, 4, 4))
