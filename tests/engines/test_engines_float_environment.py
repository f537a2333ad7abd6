"""What an engine tells the thread of floats ends with its use."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from autotune.engines.float_environment import own_float_environment

UPWARD = 0x800
AFTER_A_COMPARISON = """
import sys
from pathlib import Path
import numpy as np
from autotune.api.bench import Ask, Setting, bench_model
from autotune.target import Target

notes = []
ask = Ask(Path(sys.argv[1]), False, peers=["onnxruntime"], rounds=1)
found = bench_model(ask, Setting(Target.parse("native -num-cores=1")), notes.append)
assert not notes and len(found.comparison.results) == 2, notes
assert (np.full(64, 2e-38, np.float32) * np.float32(0.1) > 0).all(), "denormals are flushed"
"""


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_changed_inside_ends_there(fails: bool) -> None:
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    try:
        with own_float_environment():
            assert libm.fesetround(UPWARD) == 0 and libm.fegetround() == UPWARD != before
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert libm.fegetround() == before


def test_a_comparison_leaves_denormals_as_they_were(tmp_path: Path) -> None:
    """In a process of its own: ONNX Runtime flushes them in the thread of its first session."""
    pytest.importorskip("onnxruntime")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, tmp_path / "model.onnx")
    ran = subprocess.run(
        [sys.executable, "-c", AFTER_A_COMPARISON, str(tmp_path / "model.onnx")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
