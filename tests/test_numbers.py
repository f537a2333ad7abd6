"""Every number by name in what generates and chooses code is listed in docs/reference/numbers.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "numbers.md"
ROOMS = (
    "search_spaces", "cost_model", "autotune/compiler", "autotune/graph", "autotune/schedule", "autotune/lower",
)  # fmt: skip
LEFT_OUT = ("autotune/graph/frontend/", "autotune/graph/host/")
DECIDING = (
    "autotune/codegen/runtime_claims.py", "autotune/graph/frontend/learned/leaves.py",
    "autotune/graph/frontend/learned/trees.py", "autotune/graph/frontend/learned/walks.py",
    "autotune/records/record.py", "autotune/tensor/rounding.py",
)  # fmt: skip
"""Files beside those that also decide which code runs."""
PLAIN = frozenset({0.0, 0.5, 1.0, 2.0, 3.0, 1e9, 0.044715})
"""Floats that need no name: of formulas (halves, powers, the GELU of tanh) and units."""
TINY = 1e-9
"""So small or smaller only keeps something from being divided by zero."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        place = str(path.relative_to(ROOT))
        if not place.startswith(LEFT_OUT):
            yield place.removeprefix("autotune/"), ast.parse(path.read_text())
    for place in DECIDING:
        yield place.removeprefix("autotune/"), ast.parse((ROOT / place).read_text())


def in_code() -> set[tuple[str, str]]:
    """(file, name) of assignments at the top of files whose values hold numbers."""
    found = set()
    for place, tree in sources():
        for node in tree.body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is None or (isinstance(value, ast.Call) and ast.unparse(value.func).startswith("functools.")):
                continue
            if any(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in ast.walk(value)):
                names = [x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)]
                found |= {(place, name) for name in names}
    return found


def on_page() -> set[tuple[str, str]]:
    found = set()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 2:
            found |= {(cells[0].strip("`"), name) for name in re.findall(r"`([^`]+)`", cells[1])}
    return found


def test_the_page_lists_every_number_and_no_other() -> None:
    code, page = in_code(), on_page()
    assert code - page == set(), (
        "new numbers: derive them from the machine, or say on docs/reference/numbers.md where they are from"
    )
    assert page - code == set(), "gone: take them off docs/reference/numbers.md"


def test_what_is_judged_has_its_value_on_the_page() -> None:
    values = {
        (place, target.id): ast.unparse(node.value)
        for place, tree in sources()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    judged = [row for row in rows if len(row) == 5 and row[0].startswith("`")]
    assert len(judged) > 20
    for place, name, value, *_ in judged:
        known = values.get((place.strip("`"), name.strip("`")))
        assert known is None or known == value, f"{place} {name} is {known}, the page says {value}"


def test_floats_inside_functions_have_names() -> None:
    nameless = [
        f"{place}:{node.lineno} {node.value}"
        for place, tree in sources()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and node.value not in PLAIN
        and node.value > TINY
    ]
    assert nameless == []
