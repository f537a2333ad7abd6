"""NodeArg: an input or output of a model, as ONNX Runtime describes it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import InputError
from autotune.runtime.program import TensorSpec
from autotune.tensor.declared import ModelInput, ModelOutput, listed
from autotune.tensor.storage import MINIFLOATS

_ONNX_TYPES = {
    "f64": "double", "f32": "float", "f16": "float16", "bf16": "bfloat16", "bool": "bool", "string": "string",
    **{f"{a}{n}": f"{b}{n}" for a, b in (("i", "int"), ("u", "uint")) for n in (2, 4, 8, 16, 32, 64)},
    **{d.value: f"float{d.value[1:]}" for d in MINIFLOATS}, "f8e8m0": "float8e8m0",
}  # fmt: skip


def tensor_type(dtype: str) -> str:
    """ONNX Runtime's name for tensors of a dtype, as `tensor(float)`."""
    return f"tensor({_ONNX_TYPES[dtype]})"


@dataclass(frozen=True, slots=True)
class NodeArg:
    """A model input or output, as ONNX Runtime describes it."""

    name: str
    type: str
    shape: list[int | str | None]

    @staticmethod
    def of(spec: TensorSpec | ModelInput | ModelOutput) -> NodeArg:
        """Dimensions that the run decides are symbols or None; so is a whole shape, whose list is then empty."""
        if isinstance(spec, TensorSpec):
            return NodeArg(spec.name, tensor_type(spec.dtype), list(spec.shape))
        text = tensor_type(spec.dtype) if spec.dtype else ""
        if isinstance(spec, ModelInput) and spec.keys:
            return NodeArg(spec.name, f"map({_ONNX_TYPES[spec.keys]},{text})", [])
        for wrap in reversed(spec.wraps):
            text = f"{wrap}({text})"
        return NodeArg(spec.name, text, list(spec.dims or ()))

    @property
    def spec(self) -> TensorSpec:
        """Its dtype and shape. Raises InputError where the shape is open, or it is no tensor of numbers."""
        dtype = next((d for d in _ONNX_TYPES if tensor_type(d) == self.type), "string")
        if dtype == "string":
            raise InputError(f"input '{self.name}' is a {self.type}, which has no random values: run it from Python")
        shape = tuple(dim for dim in self.shape if isinstance(dim, int))
        if len(shape) != len(self.shape):
            example = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in self.shape) or "1,3,224,224"
            raise InputError(
                f"input '{self.name}' has open dimensions ({listed(self.shape)}): give --shape {self.name}={example},"
                f" or its value by --input {self.name}=FILE.npy"
            )
        return TensorSpec(self.name, dtype, shape)
