"""Every error that autotune raises on purpose.

One base class, so `except AutotuneError` catches what a user can act on and nothing else.
A message says what is wrong, where, and what to do, in one line. A failed tuning candidate is
not an error: it is a `Failure` value (see `autotune.measure`).
"""

from __future__ import annotations

from collections.abc import Mapping


class AutotuneError(Exception):
    """Base class of all errors that autotune raises on purpose.

    Attributes:
        values: what a program may want to know beside the text, as JSON can hold it.
    """

    def __init__(self, *args: object, values: Mapping[str, object] | None = None) -> None:
        super().__init__(*args)
        self.values = dict(values or {})


class IncompleteInstallError(AutotuneError):
    """A required package is not installed: fine for running compiled files, but not for what was asked."""


class ModelError(AutotuneError):
    """The ONNX model is missing, damaged or inconsistent."""


class UnsupportedError(ModelError):
    """The model is valid, but uses operators or features that autotune does not support."""


class TargetError(AutotuneError):
    """The target string is malformed, names an unknown CPU, or cannot run on this machine."""


class WorkloadError(AutotuneError):
    """An operator description has impossible shapes, dtypes or attributes."""


class ScheduleError(AutotuneError):
    """A schedule step is illegal: applying it would change the result or has no meaning."""


class ConfigError(AutotuneError):
    """A config names an unknown knob, or gives a knob a value outside its space."""


class LoweringError(AutotuneError):
    """Loop IR is malformed: a verifier found what a pass should never produce."""


class CodegenError(AutotuneError):
    """LLVM refused the generated code, or an object could not be linked."""


class ThreadPoolError(AutotuneError):
    """A thread pool could not start its threads, is closed, or belongs to another process."""


class DatabaseError(AutotuneError):
    """The tuning database cannot be opened, read, written or understood."""


class ExtensionError(AutotuneError):
    """A module with the user's own operators or templates cannot be imported."""


class MeasureError(AutotuneError):
    """The measuring machinery itself failed (not a candidate: that is a `Failure`)."""


class ClusterError(AutotuneError):
    """A cluster cannot be reached, or has no worker that can do what is asked."""


class InputError(AutotuneError, ValueError):
    """`run` was given wrong feeds: name, shape or dtype. A `ValueError`, as ONNX Runtime raises for missing inputs."""


class MemoryLimitError(AutotuneError):
    """A run needs more memory than there is."""


class CompiledModelError(AutotuneError):
    """A compiled model file is damaged, of another version, or made for another CPU."""


class CostModelError(AutotuneError):
    """A cost model was given other features than it was trained on, or its file is damaged."""


class EngineError(AutotuneError):
    """Another engine to compare with is unknown, not installed, or refuses the model."""
