"""The package's names are loaded when they are asked for, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from autotune import tensor


def printed(program: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.mark.parametrize("name", tensor.__all__)
def test_a_public_name_is_no_module(name: str) -> None:
    assert name in dir(tensor) and not isinstance(getattr(tensor, name), ModuleType)


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'autotune.tensor' has no attribute 'nothing'"):
        tensor.nothing  # noqa: B018


def test_a_session_loads_no_expressions() -> None:
    program = "import autotune, sys; autotune.InferenceSession; print('autotune.tensor.expr' in sys.modules)"
    assert printed(program) == "False"


@pytest.mark.parametrize(
    "name", ["coupled_probabilities", "determinant", "inverse", "scatter_nd", "top_k", "tree_leaves"]
)
def test_functions_are_known_before_their_modules_are_loaded(name: str) -> None:
    program = "from autotune.tensor import DType, Output, extern, placeholder; rows = placeholder((2, 3), 'f32', 'x'); "
    program += f"print(len(extern({name!r}, [rows], (2,), [Output('y', (3,), DType.f32)], k=3)))"
    assert printed(program) == "1"


def test_names_of_types_are_known_before_the_library_that_has_them_is_loaded() -> None:
    program = "import sys; from autotune.tensor import DType; before = 'ml_dtypes' in sys.modules; "
    program += "print(before, [(t.value, t.bytes) for t in map(DType.of, ('float32', 'bfloat16', 'int4'))])"
    assert printed(program) == "False [('f32', 4), ('bf16', 2), ('i4', 1)]"


def test_each_type_is_as_wide_as_numpys() -> None:
    assert [dtype.bytes for dtype in tensor.DType] == [dtype.numpy.itemsize for dtype in tensor.DType]
