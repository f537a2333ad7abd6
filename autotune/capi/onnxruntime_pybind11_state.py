"""ONNX Runtime's classes of errors, each as the one of autotune that is raised in its place.

`except InvalidArgument` of such a script catches what a run refuses, `except NoSuchFile` a model that cannot be read;
`Fail` and `RuntimeException` are what ONNX Runtime says of anything else, and here the class of all errors.
"""

from __future__ import annotations

from autotune.errors import AutotuneError, InputError, ModelError, UnsupportedError

Fail = RuntimeException = EPFail = DeviceReset = EngineError = NotFound = AutotuneError
InvalidArgument = ModelLoadCanceled = InputError
NoSuchFile = NoModel = InvalidProtobuf = InvalidGraph = ModelLoaded = ModelRequiresCompilation = ModelError
NotImplemented = UnsupportedError  # its name there

__all__ = [
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
]  # fmt: skip
