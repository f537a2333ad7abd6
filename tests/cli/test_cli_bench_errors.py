"""Which answers `autotune bench` refuses: wrong ones, and not those in which few bits round the other way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.api.bench import Setting, Timing
from autotune.cli.bench import refuse_wrong
from autotune.cli.bench_table import peer_saturates
from autotune.engines.compare import Comparison, EngineResult
from autotune.errors import EngineError
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.target import Target


def found(name: str, error: float, narrow: bool = False, rounded: bool = False) -> Timing:
    result = EngineResult(name, "1", 1e-3, 0.0, 1.0, 0.5, error, (1e-3,))
    setting = Setting(Target.parse("native -num-cores=1"))
    return Timing(setting, Comparison((result,), 100.0, 1), 1, narrow=narrow, rounded=rounded)


@pytest.mark.parametrize(
    ("name", "narrow", "rounded", "refused"),
    [
        ("autotune", False, False, True),
        ("autotune", True, False, False),
        ("autotune f32", True, False, True),
        ("autotune", False, True, False),
        ("onnxruntime", False, False, False),
    ],
)
def test_a_large_difference_is_refused_where_every_bit_is_computed(
    name: str, narrow: bool, rounded: bool, refused: bool
) -> None:
    if refused:
        with pytest.raises(EngineError, match="off by 8.0e-02 of the output's range"):
            refuse_wrong(found(name, 0.08, narrow, rounded))
    else:
        refuse_wrong(found(name, 0.08, narrow, rounded))
    refuse_wrong(found(name, 1e-5, narrow, rounded))


@pytest.mark.parametrize(
    ("features", "rounded", "checked", "said"),
    [
        ({"avx2", "fma"}, True, "onnxruntime", True),
        ({"avx2", "fma"}, False, "onnxruntime", False),
        ({"avx2", "fma"}, True, "float64", False),
        ({"avx512f", "avx512vnni"}, True, "onnxruntime", False),
        ({"avx2", "avxvnni"}, True, "onnxruntime", False),
    ],
)
def test_where_the_peer_may_be_the_one_that_is_wrong(
    features: set[str], rounded: bool, checked: str, said: bool
) -> None:
    timing = replace(found("onnxruntime", 0.05, rounded=rounded), checked=checked)
    assert peer_saturates(timing, features) == said
    assert not peer_saturates(replace(found("openvino", 0.05, rounded=rounded), checked=checked), features)


def test_quantising_operators_say_that_they_round() -> None:
    assert has_trait("quantize", Trait.ROUNDS) and has_trait("requantize", Trait.ROUNDS)
    assert not has_trait("conv2d", Trait.ROUNDS) and not has_trait("relu", Trait.ROUNDS)
