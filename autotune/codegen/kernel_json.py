"""A compiled kernel as JSON and bytes, for pipes and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.codegen.kernel import KernelObject
from autotune.lower.ir import Operand
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


def kernel_to_json(kernel: KernelObject) -> dict[str, Any]:
    """All of a kernel but its object code."""
    return {
        "symbol": kernel.symbol,
        "ir_hash": kernel.ir_hash,
        "operands": [
            [o.name, str(o.dtype), list(o.shape), o.layout.to_json(), o.role, o.constant, _text(o.prepared)]
            for o in kernel.operands
        ],
        "shared_scratch": kernel.shared_scratch,
        "thread_scratch": kernel.thread_scratch,
        "spills": kernel.spills,
        "fmas": kernel.fmas,
    }


def kernel_from_json(data: Mapping[str, Any], object_code: bytes) -> KernelObject:
    """Inverse of `kernel_to_json`."""
    operands = tuple(
        Operand(
            name,
            DType(dtype),
            tuple(shape),
            Layout.from_json(layout),
            role,
            constant,
            ComputeDef.from_json(prepared) if prepared else None,
        )
        for name, dtype, shape, layout, role, constant, prepared in data["operands"]
    )
    names = ("symbol", "ir_hash", "shared_scratch", "thread_scratch", "spills", "fmas")
    return KernelObject(object_code=object_code, operands=operands, **{name: data[name] for name in names})


def _text(prepared: ComputeDef | None) -> str:
    return prepared.to_json() if prepared is not None else ""
