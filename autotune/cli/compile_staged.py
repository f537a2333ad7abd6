"""What `autotune compile` says of a model whose shapes a run decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli.text import print_json, print_prose, print_table, size, table
from autotune.report.text import counted

if TYPE_CHECKING:
    from autotune.compiler.compile import CompiledModel
    from autotune.compiler.staged_file import StagedFile
    from autotune.report.coverage import Coverage
    from autotune.runtime.executor import Array
    from autotune.tensor.shape_range import ShapeRange

SHOWN = 4


def ranges_of(runs: Sequence[Mapping[str, Array]]) -> list[ShapeRange]:
    """The shapes of the arrays of runs."""
    from autotune.tensor.shape_range import ShapeRange

    return [ShapeRange({name: array.shape for name, array in arrays.items()}) for arrays in runs]


def show_staged(out: Path, ready: StagedFile, seconds: float, as_json: bool) -> Coverage:
    """What was prepared, and what was not.

    Args:
        seconds: that it took.

    Returns:
        what is tuned of it, which is not shown yet, unless it is JSON.
    """
    from autotune.report.coverage import Coverage

    coverage = Coverage.of([kernel for program in ready.programs for kernel in program.kernels])
    model, weights = ready.model_bytes, ready.weight_bytes
    if as_json:
        programs = [{"inputs": _shapes(one), "kernels": len(one.program.calls), "arena_bytes": one.program.arena_bytes}
                    for one in ready.programs]  # fmt: skip
        shapes = {"exact": ready.shapes.exact, "ranged": ready.shapes.ranged}
        print_json({"file": str(out), "bytes": out.stat().st_size, "seconds": seconds, "staged": True,
                    "shapes": shapes, "programs": programs, "model_bytes": model, "weight_bytes": weights,
                    "coverage": coverage.to_dict()})  # fmt: skip
        return coverage
    shown = table("program for", "kernels", "memory of a run", right=("kernels", "memory of a run"))
    for one in ready.programs:
        shown.add_row(_forms(one), str(len(one.program.calls)), size(one.program.arena_bytes))
    print_table(shown)
    every = [*ready.shapes.exact, *ready.shapes.ranged]
    named = [", ".join(f"{symbol} = {extent}" for symbol, extent in one.items()) for one in every if one]
    found = f"{counted(len(ready.programs), 'program')}, {size(weights)} of packed weights, the model's {size(model)}"
    print_prose(f"{out}: {found} ({size(out.stat().st_size)}, written in {seconds:.1f} s)")
    print_prose(f"ready for: {'; '.join(named) or 'what these runs led to'}")
    print_prose("compiled when they come: other shapes, and values that lead to other programs")
    return coverage


def _forms(program: CompiledModel) -> str:
    """What it takes, in few words: a decoder has dozens of caches."""
    forms = [f"{name} {list(shape)}" for name, shape in _shapes(program).items()]
    more = f" and {len(forms) - SHOWN} more" if len(forms) > SHOWN else ""
    return ", ".join(forms[:SHOWN]) + more or "no inputs"


def _shapes(program: CompiledModel) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in program.inputs}
