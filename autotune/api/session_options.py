"""SessionOptions and RunOptions as scripts for ONNX Runtime set them; what has no effect here says so, once."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

from autotune.errors import InputError, UnsupportedError
from autotune.target import Target


class GraphOptimizationLevel(IntEnum):
    """How much ONNX Runtime rewrites graphs; here all passes run (`skip_passes` leaves some out)."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether branches of a graph run beside each other in ONNX Runtime; here all threads share each kernel."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order of nodes in ONNX Runtime; here the memory plan decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(IntEnum):
    """Which device ONNX Runtime prefers; here that is the CPU."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_told: set[str] = set()


def tell_once(what: str, why: str) -> None:
    """Warn that something a script asks for is not done, the first time that it is asked for."""
    if what not in _told:
        _told.add(what)
        warnings.warn(f"{what} has no effect in autotune: {why}", stacklevel=level_of_the_script())


def level_of_the_script() -> int:
    """For a warning of the calling function: the level of the first caller that is no part of autotune."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "autotune":
        level, frame = level + 1, frame.f_back
    return level


def set_default_logger_severity(severity: int) -> None:
    """0 (verbose) to 4 (fatal): the level of the logger `autotune`. Raises InputError for anything else."""
    if severity not in range(len(_LEVELS)):
        raise InputError(f"a log severity is 0 (verbose) to 4 (fatal), not {severity!r}")
    logging.getLogger("autotune").setLevel(_LEVELS[severity])


_KINDS: dict[type, str] = {bool: "True or False", int: "a number", str: "a text"}


class _Options:
    """Attributes with defaults and no others, and a table of entries by name."""

    defaults: ClassVar[dict[str, Any]]
    without_effect: ClassVar[dict[str, str]]
    _entries: dict[str, str]

    def __init__(self) -> None:
        self.__dict__.update(self.defaults)
        self.__dict__["_entries"] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        default = self.defaults.get(name)
        if name not in self.defaults:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        kind = next(kind for kind in _KINDS if isinstance(default, kind))
        if not isinstance(value, kind):
            raise InputError(f"{type(self).__name__}.{name} is {_KINDS[kind]}, not {value!r}")
        if value != default and name in self.without_effect:
            tell_once(f"{type(self).__name__}.{name}", self.without_effect[name])
        self.__dict__[name] = value

    def __repr__(self) -> str:
        changed = (f"{name}={self.__dict__[name]!r}" for name, value in self.defaults.items()
                   if self.__dict__[name] != value)  # fmt: skip
        return f"{type(self).__name__}({', '.join(changed)})"

    def _add(self, kind: str, key: str, value: str) -> None:
        tell_once(f"the {kind} entry {key!r}", "entries are kept, and nothing reads them")
        self._entries[str(key)] = str(value)

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise InputError(f"{type(self).__name__} has no entry {key!r}")
        return self._entries[key]


_ONE_REGION = "one kernel runs at a time, on all threads of intra_op_num_threads"
_PLANNED = "memory is planned when the model is compiled"


class SessionOptions(_Options):
    """Settings of a session.

    Heeded: `intra_op_num_threads`, `enable_profiling`, `profile_file_prefix`, `log_severity_level`, dimensions by
    name and by denotation. `use_deterministic_compute` is always so. Every other change warns, once in a process.
    """

    defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True, "enable_mem_pattern": True, "enable_mem_reuse": True, "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL, "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL, "inter_op_num_threads": 0,
        "intra_op_num_threads": 0, "log_severity_level": -1, "log_verbosity_level": 0, "logid": "",
        "optimized_model_filepath": "", "profile_file_prefix": "autotune_profile_", "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }  # fmt: skip
    without_effect: ClassVar[dict[str, str]] = {
        "enable_cpu_mem_arena": _PLANNED, "enable_mem_pattern": _PLANNED, "enable_mem_reuse": _PLANNED,
        "execution_mode": _ONE_REGION, "execution_order": _PLANNED, "inter_op_num_threads": _ONE_REGION,
        "graph_optimization_level": "all passes run; skip_passes=(...) of InferenceSession leaves some out",
        "optimized_model_filepath": "a compiled model is no ONNX file; dump_graph=... writes the graph after each pass",
        "use_per_session_threads": "every session has threads of its own",
    }  # fmt: skip

    extents: dict[str, int]
    """Open dimensions by name."""

    denoted: dict[str, int]
    """Open dimensions by denotation."""

    cancelled: bool
    """Whether no model may be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["extents"] = {}
        self.__dict__["denoted"] = {}
        self.__dict__["cancelled"] = False

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Bind an open dimension of the inputs by its name; a name that the model has not is passed over."""
        self.extents[dim_name] = _extent(dim_name, dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Bind open dimensions of the inputs by what the model says they are, as "DATA_BATCH"; one that the model has
        not is passed over."""
        self.denoted[denotation] = _extent(denotation, dim_value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; nothing reads it."""
        self._add("session", key, value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added. Raises InputError when there is none."""
        return self._get(key)

    def add_initializer(self, name: str, value: object) -> None:
        """Raises UnsupportedError: it would change what the model computes."""
        raise UnsupportedError(f"add_initializer({name!r}): write the tensor into the model before it is loaded")

    def add_external_initializers(self, names: object, values: object) -> None:
        """Raises UnsupportedError: it would change what the model computes."""
        raise UnsupportedError("add_external_initializers: keep the tensors' file beside the model")

    def add_external_initializers_from_files_in_memory(self, names: object, buffers: object, lengths: object) -> None:
        """Raises UnsupportedError: external tensors are read from files beside the model."""
        raise UnsupportedError(
            "add_external_initializers_from_files_in_memory: keep the tensors' file beside the model"
        )

    def register_custom_ops_library(self, path: str) -> None:
        """Raises UnsupportedError: its kernels are code for ONNX Runtime."""
        raise UnsupportedError(f"register_custom_ops_library({path!r}): custom operators are Python modules (--import)")

    def add_provider(self, name: str, options: object = None) -> None:
        """Has no effect: autotune runs on the CPU."""
        if name != "CPUExecutionProvider":
            tell_once(f"the provider {name}", "it runs on the CPU")

    def add_provider_for_devices(self, devices: Sequence[Any], options: object = None) -> None:
        """Has no effect: autotune runs on the CPU."""
        for device in devices:
            if not hasattr(device, "ep_name"):
                raise InputError(f"get_ep_devices() gives devices, not {device!r}")
            self.add_provider(device.ep_name)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Has no effect: there is one provider. Warns, once, of a policy that prefers another device."""
        if policy in (OrtExecutionProviderDevicePolicy.PREFER_NPU, OrtExecutionProviderDevicePolicy.PREFER_GPU):
            tell_once(f"the policy {OrtExecutionProviderDevicePolicy(policy).name}", "it runs on the CPU")

    def set_provider_selection_policy_delegate(self, delegate: object) -> None:
        """Has no effect: there is one provider."""
        tell_once("set_provider_selection_policy_delegate", "it runs on the CPU")

    def set_ep_context_data_read_func(self, read_func: object, max_data_size: int) -> None:
        """Has no effect: no code of another device's compiler is read."""
        tell_once("set_ep_context_data_read_func", "it reads no code of another device's compiler")

    def clear_ep_context_data_read_func(self) -> None:
        """Nothing: no such function is called."""

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """Whether to refuse to load a model with these options. One that is being loaded already is loaded."""
        self.__dict__["cancelled"] = bool(cancel)

    def has_providers(self) -> bool:
        return False


def check_readable(options: object) -> None:
    """Warn, once, of ONNX Runtime's own options: what was added to them, nobody can ask them for."""
    if type(options).__module__.partition(".")[0] == "onnxruntime":
        tell_once(
            "what was added to onnxruntime.SessionOptions (dimensions, entries)",
            "it cannot be read; use autotune.SessionOptions",
        )


def check_loading(options: object) -> None:
    """Raises InputError where the options' cancellation flag is set."""
    if getattr(options, "cancelled", False):
        raise InputError("loading was canceled: SessionOptions.set_load_cancellation_flag is set")


def with_threads(target: Target, options: object) -> Target:
    """The target with as many threads as the options say, where they say it."""
    threads = int(getattr(options, "intra_op_num_threads", 0) or 0)
    return target.with_threads(threads) if threads else target


def _extent(name: str, value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise InputError(f"dimension {name!r} cannot be {value!r}")
    return value


class RunOptions(_Options):
    """Settings of one run. Heeded: `terminate`, which refuses the run."""

    defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1, "log_verbosity_level": 0, "logid": "", "only_execute_path_to_fetches": False,
        "terminate": False,
    }  # fmt: skip
    without_effect: ClassVar[dict[str, str]] = {"only_execute_path_to_fetches": "the model is one program"}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; nothing reads it."""
        self._add("run", key, value)

    def add_active_adapter(self, adapter: object) -> None:
        """Raises UnsupportedError: its weights would change the compiled program."""
        raise UnsupportedError("add_active_adapter: weights are compiled in; merge the adapter's before the export")

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added. Raises InputError when there is none."""
        return self._get(key)
