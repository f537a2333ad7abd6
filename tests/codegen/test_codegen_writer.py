"""The writer stops at code that LLVM would take minutes for."""

from __future__ import annotations

import pytest

from autotune.codegen.writer import MAX_VALUES, Writer
from autotune.errors import CodegenError


def test_code_without_end_is_refused() -> None:
    writer = Writer()
    for _ in range(MAX_VALUES):
        writer.value("add i64 1, 1")
    with pytest.raises(CodegenError, match="unroll less"):
        writer.value("add i64 1, 1")
