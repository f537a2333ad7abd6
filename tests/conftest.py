"""What every test shares: skipping by CPU feature."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `isa(name)` where this CPU lacks the feature, and say which."""
    features = llvm.get_host_cpu_features()
    for item in items:
        for marker in item.iter_markers("isa"):
            if not features.get(marker.args[0], False):
                item.add_marker(pytest.mark.skip(reason=f"this CPU has no {marker.args[0]}"))
