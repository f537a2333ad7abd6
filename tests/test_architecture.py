"""The house rules that a program can check: import direction, import names, file sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.search_spaces.space.code_version import ROOMS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "autotune"

# Room -> the rooms it may import directly (docs/concepts/architecture.md). What those may import, it may too.
DOORS: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "metadata": set(),
    "install": {"errors"},
    "arguments": {"errors"},
    "topology": set(),
    "sources": set(),
    "packages": set(),
    "plugins": {"errors", "packages"},
    "cpuid": set(),
    "machine": {"errors", "topology", "cpuid", "packages"},
    "cpus": {"machine"},
    "core": {"errors"},
    "cores": {"core", "machine"},
    "target": {"machine", "cpus", "cores", "arguments"},
    "tensor": {"errors", "install", "arguments"},
    "ops": {"tensor", "plugins"},
    "schedule": {"tensor"},
    "lower": {"schedule", "target"},
    "codegen": {"lower"},
    "runtime": {"codegen", "metadata"},
    "search_spaces": {"ops", "schedule", "target", "sources", "cost_model"},  # whose prior chooses untuned schedules
    "records": {"errors", "install", "arguments"},
    "cost_model": {"lower", "machine"},
    "measure": {"runtime", "search_spaces", "ops"},
    "search": {"search_spaces", "cost_model", "measure", "records"},
    "graph": {"ops", "tensor", "metadata"},
    "compiler": {"graph", "search_spaces", "records", "codegen", "runtime"},
    "report": {"compiler", "search", "measure"},
    "aot": {"compiler"},  # shared libraries
    "engines": {"compiler", "measure"},  # ours and others, to compare with
    "fleet": {"engines", "version"},  # other machines' builders and runners
    "api": {"compiler", "search", "engines", "report", "version", "fleet"},  # what autotune/__init__.py re-exports
    "capi": {"errors"},  # ONNX Runtime's names of errors
    "cli": {"api", "aot", "report", "engines", "version", "fleet"},
    "testing": {"search"},  # for the tests of plugins
    "onnx_backend": {"api"},
    "torch_backend": {"api"},
}


def reachable(room: str) -> set[str]:
    """The rooms that `room` may import: through its doors, and through theirs."""
    seen: set[str] = set()
    todo = [room]
    while todo:
        for door in DOORS[todo.pop()] - seen:
            seen.add(door)
            todo.append(door)
    return seen


def sources() -> list[Path]:
    return sorted(PACKAGE.glob("*.py")) + sorted(
        path for folder in PACKAGE.iterdir() if folder.is_dir() for path in folder.rglob("*.py")
    )


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import, those inside functions and under TYPE_CHECKING included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from autotune import target` names a module, `from autotune.target import Target` has it already
            yield from (
                (node.lineno, f"{module}.{alias.name}" if module == "autotune" else module) for alias in node.names
            )


def broken_doors(room: str, source: str) -> list[str]:
    """The imports in `source`, a file of `room`, that no door allows."""
    found = []
    for line, name in imported_modules(ast.parse(source)):
        parts = name.split(".")
        if parts[0] == "":
            found.append(f"line {line}: relative import; write the full name")
        elif parts[0] in {"records", "cost_model", "search_spaces"}:
            found.append(f"line {line}: import autotune.{name}, not {name}")
        elif parts[0] == "autotune" and room != "__init__":
            to = parts[1] if len(parts) > 1 else ""
            if to != room and to not in reachable(room):
                found.append(f"line {line}: {room} must not import {name}")
    return found


def test_the_table_has_no_cycle() -> None:
    assert [room for room in DOORS if room in reachable(room)] == []


def test_the_code_version_covers_every_room_between_config_and_code() -> None:
    """What templates and code generation may import decides code; messages, and where it runs, do not."""
    between = {"search_spaces", "codegen"} | reachable("search_spaces") | reachable("codegen")
    assert set(ROOMS) == between - {"errors", "install", "arguments", "cpuid"}, (
        "ROOMS in search_spaces/space/code_version.py and DOORS differ"
    )


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path in sources()} - {"__init__", "__main__"}
    assert rooms - DOORS.keys() == set(), "new room: add its row to DOORS and to docs/concepts/architecture.md"
    assert {"records", "cost_model", "search_spaces"} <= rooms, "the links to the top-level folders are broken"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    if room_of(path) != "__main__":
        assert broken_doors(room_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("room", "source", "complaint"),
    [
        ("records", "import autotune.target", "records must not import autotune.target"),
        ("tensor", "from autotune.schedule import Schedule", "tensor must not import autotune.schedule"),
        ("ops", "def f():\n    from autotune import graph", "line 2: ops must not import autotune.graph"),
        ("search", "import records", "import autotune.records, not records"),
        ("search", "from cost_model.features import x", "import autotune.cost_model.features"),
        ("search", "from . import loop", "relative import"),
        ("search", "import autotune", "search must not import autotune"),
    ],
)
def test_a_forbidden_import_is_found(room: str, source: str, complaint: str) -> None:
    (found,) = broken_doors(room, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("codegen", "from autotune.target import Target\nfrom autotune.errors import CodegenError"),
        ("cli", "from autotune.records import Database\nimport numpy"),
        ("search", "from autotune.search.loop import run"),
    ],
)
def test_an_allowed_import_passes(room: str, source: str) -> None:
    assert broken_doors(room, source) == []


def test_no_file_is_longer_than_500_lines() -> None:
    folders = [ROOT / "tests", ROOT / "benchmarks", ROOT / "examples"]
    files = [*sources(), *(path for folder in folders for path in folder.rglob("*.py"))]
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}, "perhaps two rooms in one: split it"
