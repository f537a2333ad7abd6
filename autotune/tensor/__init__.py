"""What is computed: dtypes, tensors, expressions, stages, and their NumPy evaluation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.tensor.compute_def import ComputeDef
    from autotune.tensor.dtype import DType
    from autotune.tensor.expr import Const, Expr, Read, Var, cast, const, maximum, minimum, read, select, unary
    from autotune.tensor.externs import Output, extern, extern_value
    from autotune.tensor.layout import Layout
    from autotune.tensor.recurrences import recurrence, state
    from autotune.tensor.reducer import Reducer, arg_reducer
    from autotune.tensor.stage import (
        Axis,
        Stage,
        Tensor,
        compute,
        compute_many,
        largest_,
        max_,
        min_,
        placeholder,
        prod_,
        reduce,
        reduce_axis,
        scan,
        sum_,
        table,
    )

# Module -> names; loaded on first use, so that a session of a compiled model loads dtypes alone.
_PUBLIC = {
    "compute_def": ("ComputeDef",),
    "dtype": ("DType",),
    "expr": ("Const", "Expr", "Read", "Var", "cast", "const", "maximum", "minimum", "read", "select", "unary"),
    "externs": ("Output", "extern", "extern_value"),
    "layout": ("Layout",),
    "recurrences": ("recurrence", "state"),
    "reducer": ("Reducer", "arg_reducer"),
    "stage": (
        "Axis", "Stage", "Tensor", "compute", "compute_many", "largest_", "max_", "min_", "placeholder", "prod_",
        "reduce", "reduce_axis", "scan", "sum_", "table",
    ),
}  # fmt: skip
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "Axis", "ComputeDef", "Const", "DType", "Expr", "Layout", "Output", "Read", "Reducer", "Stage", "Tensor", "Var",
    "arg_reducer", "cast", "compute", "compute_many", "const", "extern", "extern_value", "largest_", "max_", "maximum",
    "min_", "minimum", "placeholder", "prod_", "read", "recurrence", "reduce", "reduce_axis", "scan", "select", "state",
    "sum_", "table", "unary",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'autotune.tensor' has no attribute {name!r}")
    return getattr(importlib.import_module(f"autotune.tensor.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
