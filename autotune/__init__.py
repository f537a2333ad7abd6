"""autotune: makes ONNX models run as fast as this CPU allows, and proves it.

import autotune
session = autotune.InferenceSession("resnet50.onnx")
(logits,) = session.run(None, {"data": image})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autotune.install import needing_all

if TYPE_CHECKING:
    from autotune import capi as capi
    from autotune.api.best import BestSchedule, best_schedule
    from autotune.api.compile import compile, tasks
    from autotune.api.ep_context import (
        OrtEpAssignedNode,
        OrtEpAssignedSubgraph,
        OrtEpContextData,
        OrtEpContextDataBuffer,
        OrtExternalInitializerInfo,
        OrtSyncStream,
    )
    from autotune.api.ep_devices import (
        OrtEpDevice,
        OrtHardwareDevice,
        OrtHardwareDeviceType,
        get_ep_devices,
        register_execution_provider_library,
        unregister_execution_provider_library,
    )
    from autotune.api.explain import explain
    from autotune.api.fallback import FallbackWarning
    from autotune.api.io_binding import IOBinding, SessionIOBinding
    from autotune.api.locate import Layered
    from autotune.api.lora_adapter import AdapterFormat, LoraAdapter
    from autotune.api.model_compiler import ModelCompiler, OrtCompileApiFlags
    from autotune.api.model_package import (
        ModelPackage,
        ModelPackageComponentContext,
        ModelPackageContext,
        ModelPackageOptions,
        ModelPackageWriteMode,
    )
    from autotune.api.node_arg import NodeArg
    from autotune.api.optimize import optimize
    from autotune.api.ort_device import OrtDevice, OrtDeviceVendorId
    from autotune.api.ort_memory import (
        OrtAllocatorType,
        OrtArenaCfg,
        OrtDeviceMemoryType,
        OrtMemoryInfo,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        create_and_register_allocator,
        create_and_register_allocator_v2,
    )
    from autotune.api.ort_module import (
        cuda_version,
        disable_telemetry_events,
        enable_telemetry_events,
        get_build_info,
        get_version_string,
        has_collective_ops,
        package_name,
        preload_dlls,
        print_debug_info,
        set_default_logger_callback,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
        set_seed,
    )
    from autotune.api.ort_value import OrtValue, copy_tensors
    from autotune.api.providers import get_all_providers, get_available_providers, get_device
    from autotune.api.report import write_report
    from autotune.api.session import InferenceSession
    from autotune.api.session_options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtExecutionProviderDevicePolicy,
        RunOptions,
        SessionOptions,
        set_default_logger_severity,
    )
    from autotune.api.shapes import compile_shapes
    from autotune.api.sparse_tensor import OrtSparseFormat, SparseTensor
    from autotune.api.staged import compile_staged
    from autotune.api.tune import tune
    from autotune.api.tuning import TuneReport
    from autotune.compiler.compile import CompiledModel
    from autotune.compiler.compiled_shapes import CompiledShapes
    from autotune.errors import AutotuneError
    from autotune.metadata import ModelMetadata
    from autotune.ops.workload import Workload
    from autotune.records import Database
    from autotune.target import Target
    from autotune.tensor.shape_range import ShapeRange

# Name -> module; loaded on first use, so that a compiled model starts without ONNX, XGBoost or SQLite.
_PUBLIC = {
    "AdapterFormat": "autotune.api.lora_adapter",
    "AutotuneError": "autotune.errors",
    "BestSchedule": "autotune.api.best",
    "CompiledModel": "autotune.compiler.compile",
    "CompiledShapes": "autotune.compiler.compiled_shapes",
    "Database": "autotune.records",
    "ExecutionMode": "autotune.api.session_options",
    "ExecutionOrder": "autotune.api.session_options",
    "FallbackWarning": "autotune.api.fallback",
    "GraphOptimizationLevel": "autotune.api.session_options",
    "IOBinding": "autotune.api.io_binding",
    "InferenceSession": "autotune.api.session",
    "Layered": "autotune.api.locate",
    "LoraAdapter": "autotune.api.lora_adapter",
    "ModelCompiler": "autotune.api.model_compiler",
    "ModelMetadata": "autotune.metadata",
    "ModelPackage": "autotune.api.model_package",
    "ModelPackageComponentContext": "autotune.api.model_package",
    "ModelPackageContext": "autotune.api.model_package",
    "ModelPackageOptions": "autotune.api.model_package",
    "ModelPackageWriteMode": "autotune.api.model_package",
    "NodeArg": "autotune.api.node_arg",
    "OrtAllocatorType": "autotune.api.ort_memory",
    "OrtArenaCfg": "autotune.api.ort_memory",
    "OrtCompileApiFlags": "autotune.api.model_compiler",
    "OrtDevice": "autotune.api.ort_device",
    "OrtDeviceMemoryType": "autotune.api.ort_memory",
    "OrtDeviceVendorId": "autotune.api.ort_device",
    "OrtEpAssignedNode": "autotune.api.ep_context",
    "OrtEpAssignedSubgraph": "autotune.api.ep_context",
    "OrtEpContextData": "autotune.api.ep_context",
    "OrtEpContextDataBuffer": "autotune.api.ep_context",
    "OrtEpDevice": "autotune.api.ep_devices",
    "OrtExecutionProviderDevicePolicy": "autotune.api.session_options",
    "OrtExternalInitializerInfo": "autotune.api.ep_context",
    "OrtHardwareDevice": "autotune.api.ep_devices",
    "OrtHardwareDeviceType": "autotune.api.ep_devices",
    "OrtMemType": "autotune.api.ort_memory",
    "OrtMemoryInfo": "autotune.api.ort_memory",
    "OrtMemoryInfoDeviceType": "autotune.api.ort_memory",
    "OrtSparseFormat": "autotune.api.sparse_tensor",
    "OrtSyncStream": "autotune.api.ep_context",
    "OrtValue": "autotune.api.ort_value",
    "RunOptions": "autotune.api.session_options",
    "SessionIOBinding": "autotune.api.io_binding",
    "SessionOptions": "autotune.api.session_options",
    "ShapeRange": "autotune.tensor.shape_range",
    "SparseTensor": "autotune.api.sparse_tensor",
    "Target": "autotune.target",
    "TuneReport": "autotune.api.tuning",
    "Workload": "autotune.ops.workload",
    "best_schedule": "autotune.api.best",
    "compile": "autotune.api.compile",
    "compile_shapes": "autotune.api.shapes",
    "compile_staged": "autotune.api.staged",
    "copy_tensors": "autotune.api.ort_value",
    "create_and_register_allocator": "autotune.api.ort_memory",
    "create_and_register_allocator_v2": "autotune.api.ort_memory",
    "cuda_version": "autotune.api.ort_module",
    "disable_telemetry_events": "autotune.api.ort_module",
    "enable_telemetry_events": "autotune.api.ort_module",
    "explain": "autotune.api.explain",
    "get_all_providers": "autotune.api.providers",
    "get_available_providers": "autotune.api.providers",
    "get_build_info": "autotune.api.ort_module",
    "get_device": "autotune.api.providers",
    "get_ep_devices": "autotune.api.ep_devices",
    "get_version_string": "autotune.api.ort_module",
    "has_collective_ops": "autotune.api.ort_module",
    "optimize": "autotune.api.optimize",
    "package_name": "autotune.api.ort_module",
    "preload_dlls": "autotune.api.ort_module",
    "print_debug_info": "autotune.api.ort_module",
    "register_execution_provider_library": "autotune.api.ep_devices",
    "set_default_logger_callback": "autotune.api.ort_module",
    "set_default_logger_severity": "autotune.api.session_options",
    "set_default_logger_verbosity": "autotune.api.ort_module",
    "set_global_thread_pool_sizes": "autotune.api.ort_module",
    "set_seed": "autotune.api.ort_module",
    "tasks": "autotune.api.compile",
    "tune": "autotune.api.tune",
    "unregister_execution_provider_library": "autotune.api.ep_devices",
    "write_report": "autotune.api.report",
}

__all__ = [
    "AdapterFormat",
    "AutotuneError",
    "BestSchedule",
    "CompiledModel",
    "CompiledShapes",
    "Database",
    "ExecutionMode",
    "ExecutionOrder",
    "FallbackWarning",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "Layered",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "ShapeRange",
    "SparseTensor",
    "Target",
    "TuneReport",
    "Workload",
    "best_schedule",
    "compile",
    "compile_shapes",
    "compile_staged",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "explain",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "optimize",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "tasks",
    "tune",
    "unregister_execution_provider_library",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("autotune.version").installed_version() or "unknown"
    if name == "capi":
        return importlib.import_module("autotune.capi")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    with needing_all(f"autotune.{name}"):
        return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "__version__", "capi"])
