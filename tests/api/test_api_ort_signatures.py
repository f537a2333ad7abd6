"""Every public name of ONNX Runtime is here, with every public attribute and argument; but for what is named below."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

import onnxruntime
import pytest

import autotune

LEFT_BEHIND = {"import_capi_exception"}
"""What its `__init__.py` keeps for itself."""

OF_AN_ENUM = {"name", "value"}
"""pybind11 has them on the class, too."""

NEVER_MADE = {
    "AdapterFormat", "ModelPackage", "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpContextData",
    "OrtEpContextDataBuffer", "OrtSyncStream",
}  # fmt: skip
"""Classes whose constructors refuse, so that no attribute is ever asked for."""


def public(one: object) -> list[str]:
    """But for modules inside, which are there once somebody has imported them."""
    names = [name for name in dir(one) if not name.startswith("_")]
    return [name for name in names if not isinstance(getattr(one, name), ModuleType)]


def classes() -> list[str]:
    return [name for name in public(onnxruntime) if isinstance(getattr(onnxruntime, name), type)]


def calls() -> Iterator[tuple[str, str]]:
    """What is written in Python there, and so has a signature."""
    for name in public(onnxruntime):
        theirs = getattr(onnxruntime, name)
        if inspect.isfunction(theirs):
            yield name, ""
        elif isinstance(theirs, type) and not issubclass(theirs, int) and name not in NEVER_MADE:
            found = {each: getattr(theirs, each) for each in public(theirs)}
            yield from ((name, m) for m, one in found.items() if inspect.isfunction(one) or inspect.ismethod(one))


def test_every_name_of_the_module_is_here() -> None:
    assert set(public(onnxruntime)) - {name for name in public(onnxruntime) if hasattr(autotune, name)} == LEFT_BEHIND


@pytest.mark.parametrize("name", classes())
def test_every_attribute_of_a_class_is_here(name: str) -> None:
    ours = getattr(autotune, name)
    if name in NEVER_MADE:
        with pytest.raises(autotune.AutotuneError, match=r"CPU|compiled in|onnxruntime writes"):
            ours()
        return
    here = ours() if name.endswith("Options") and name != "ModelPackageOptions" else ours
    missing = {one for one in public(getattr(onnxruntime, name)) if not hasattr(here, one)}
    assert missing <= OF_AN_ENUM


@pytest.mark.parametrize(("name", "method"), [*calls()])
def test_arguments_have_the_same_names_and_order(name: str, method: str) -> None:
    theirs, ours = getattr(onnxruntime, name), getattr(autotune, name)
    if method:
        theirs, ours = getattr(theirs, method), getattr(ours, method)
    try:
        wanted = inspect.signature(theirs).parameters
    except ValueError:
        return  # of C++
    found = inspect.signature(ours).parameters
    named = [one for one, about in wanted.items() if about.kind is not inspect.Parameter.VAR_KEYWORD]
    assert list(found)[: len(named)] == named
    needed = {one for one, about in found.items() if about.default is inspect.Parameter.empty}
    assert needed <= {one for one, about in wanted.items() if about.default is inspect.Parameter.empty}


@pytest.mark.parametrize("name", [n for n in classes() if hasattr(getattr(onnxruntime, n), "__members__")])
def test_enumerations_have_the_same_values(name: str) -> None:
    theirs, ours = (getattr(library, name).__members__ for library in (onnxruntime, autotune))
    assert {key: int(getattr(one, "value", one)) for key, one in theirs.items()} == {k: int(v) for k, v in ours.items()}


def test_every_class_of_errors_is_one_of_ours() -> None:
    theirs = onnxruntime.capi.onnxruntime_pybind11_state
    names = [
        n for n in dir(theirs) if isinstance(getattr(theirs, n), type) and issubclass(getattr(theirs, n), Exception)
    ]
    ours = autotune.capi.onnxruntime_pybind11_state
    assert names and all(issubclass(getattr(ours, name), autotune.AutotuneError) for name in names)
    assert autotune.capi._pybind_state is ours
