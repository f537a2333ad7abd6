"""What is computed: dtypes, tensors, expressions, stages, and their NumPy evaluation."""

from autotune.tensor import coupling as _coupling  # noqa: F401  registers its value
from autotune.tensor import determinant as _determinant  # noqa: F401  registers its value
from autotune.tensor import scatter as _scatter  # noqa: F401  registers its values
from autotune.tensor import trees as _trees  # noqa: F401  registers its value
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Const, Expr, Read, Var, cast, const, maximum, minimum, read, select, unary
from autotune.tensor.extern import Output, extern, extern_value
from autotune.tensor.layout import Layout
from autotune.tensor.recurrence import recurrence, state
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

__all__ = [
    "Axis", "ComputeDef", "Const", "DType", "Expr", "Layout", "Output", "Read", "Reducer", "Stage", "Tensor", "Var",
    "arg_reducer", "cast", "compute", "compute_many", "const", "extern", "extern_value", "largest_", "max_", "maximum",
    "min_", "minimum", "placeholder", "prod_", "read", "recurrence", "reduce", "reduce_axis", "scan", "select", "state",
    "sum_", "table", "unary",
]  # fmt: skip
