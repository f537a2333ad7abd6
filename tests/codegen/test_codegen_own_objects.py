"""Objects of our own: a file that brings one keeps LLVM from being asked."""

from __future__ import annotations

import pytest

from autotune.codegen import own_objects
from autotune.codegen.host_objects import host_objects
from autotune.codegen.own_objects import bring, own_key, own_object

TEXT = "define i64 @brought() {\n  ret i64 7\n}\n"


def test_what_was_brought_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_objects, "_brought", {})
    assert own_object(TEXT, "x86-64")[:4] == b"\x7fELF"
    bring({own_key(TEXT, "x86-64"): b"brought"})
    assert own_object(TEXT, "x86-64") == b"brought"
    assert own_object(TEXT, "x86-64-v3")[:4] == b"\x7fELF"
    assert own_object(TEXT.replace("7", "8"), "x86-64")[:4] == b"\x7fELF"


def test_host_operators_are_all_there() -> None:
    found = host_objects()
    assert len(found) == 5 and all(code[:4] == b"\x7fELF" for code in found.values())
