"""The mathematics of every operator, one file per family; importing this package registers them all."""

from autotune.ops import (
    activation,
    attention,
    conv,
    cosine_window,
    elementwise,
    matmul,
    movement,
    norm,
    pool,
    reduce,
    scan,
    select,
    softmax,
    winograd,
)
from autotune.ops.parse import parse_workload
from autotune.ops.registry import algorithm, algorithms, compute_def, lookup, operator, operators
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode

__all__ = [
    "TensorType",
    "Workload",
    "WorkloadInput",
    "WorkloadNode",
    "activation",
    "algorithm",
    "algorithms",
    "attention",
    "compute_def",
    "conv",
    "cosine_window",
    "elementwise",
    "lookup",
    "matmul",
    "movement",
    "norm",
    "operator",
    "operators",
    "parse_workload",
    "pool",
    "reduce",
    "scan",
    "select",
    "softmax",
    "winograd",
]
