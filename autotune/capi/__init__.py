"""What scripts for ONNX Runtime import from its inner modules: the classes of its errors."""

from autotune.capi import onnxruntime_pybind11_state

_pybind_state = onnxruntime_pybind11_state
