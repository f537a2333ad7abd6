"""Identity: what a worker says of itself when it joins, and whether a tuner can work with it."""

from __future__ import annotations

import hashlib
import json
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune import errors, machine
from autotune.errors import AutotuneError, ClusterError
from autotune.measure.extensions import source_of
from autotune.measure.protocol import Json
from autotune.plugins import plugin_modules
from autotune.search_spaces.space.code_version import source_hash
from autotune.sources import files_of
from autotune.target import Target
from autotune.version import installed_version

# What a measurement depends on beside the way from a config to code: both ends of every message.
_ROOMS = ("measure", "runtime", "engines", "fleet")
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Attributes:
        versions: of autotune, Python, llvmlite, NumPy and distributed.
        code: a hash of all sources that a measurement depends on, plugins and the user's own operators included.
        host: the machine's name; `cpu`: the CPU's.
        cores: that the worker may use.
        builders: how many candidates it builds at a time; 0 when it builds none.
        targets: for which it runs kernels.
    """

    versions: Mapping[str, str]
    code: str
    host: str
    cpu: str
    cores: int
    builders: int = 0
    targets: tuple[Target, ...] = ()

    @staticmethod
    def here(imports: Sequence[str] = (), *, builders: int = 0, targets: Sequence[Target] = ()) -> Identity:
        """Of this process; `imports` are the modules or files with the user's own operators, which are loaded."""
        return Identity(
            {
                "autotune": installed_version() or "",
                "python": platform.python_version(),
                **{name: _installed(name) for name in ("llvmlite", "numpy", "distributed")},
            },
            _code(imports),
            socket.gethostname(),
            machine.cpu_name(),
            machine.allowed_cores(),
            builders,
            tuple(targets),
        )

    @property
    def resources(self) -> dict[str, float]:
        """What Dask matches tasks with: equal code, and for runners an equal target."""
        runs = {run_resource(target, self.code): 1.0 for target in self.targets}
        return {**({build_resource(self.code): float(self.builders)} if self.builders else {}), **runs}

    def difference(self, other: Identity) -> str:
        """Why the two cannot work together, in words: "autotune 0.2 where this is 0.1"; empty when they can."""
        if self.code == other.code:
            return ""
        found = [
            f"{name} {theirs or '?'} where this has {self.versions.get(name) or '?'}"
            for name, theirs in sorted(other.versions.items())
            if name in ("autotune", "llvmlite", "numpy") and theirs != self.versions.get(name)
        ]
        return ", ".join(found) or (
            f"other code ({other.code[:8]} where this is {self.code[:8]}): install the same autotune there, and start "
            "it with the same --import and plugins"
        )

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "targets": [target.to_json() for target in self.targets]})

    @staticmethod
    def from_json(text: object) -> Identity:
        """Inverse of `to_json`.

        Raises:
            ClusterError: it is none.
        """
        try:
            values = json.loads(text) if isinstance(text, str) else None
            if not isinstance(values, dict) or values.keys() != {field.name for field in fields(Identity)}:
                raise ClusterError("it is no worker of autotune; start one by: autotune worker")
            return Identity(
                {str(name): str(one) for name, one in values["versions"].items()},
                str(values["code"]),
                str(values["host"]),
                str(values["cpu"]),
                int(values["cores"]),
                int(values["builders"]),
                tuple(Target.from_json(target) for target in values["targets"]),
            )
        except ClusterError:
            raise
        except (ValueError, TypeError, AttributeError, AutotuneError) as error:
            raise ClusterError(f"it describes itself wrongly: {' '.join(str(error).split())[:200]}") from error


def build_resource(code: str) -> str:
    """The name of the Dask resource of builders with this code."""
    return f"autotune-build-{code[:_DIGITS]}"


def run_resource(target: Target, code: str) -> str:
    """The name of the Dask resource of runners for this target, with this code."""
    return f"autotune-run-{target.key}-{code[:_DIGITS]}"


def _code(imports: Sequence[str]) -> str:
    root = Path(errors.__file__).parent
    digest = hashlib.sha256((source_hash() or installed_version() or "").encode())
    for path in sorted(path for room in _ROOMS for path in files_of(root, room)):
        digest.update(path.read_bytes())
    extensions = (*imports, *plugin_modules())
    for content in sorted(hashlib.sha256(source_of(name)).hexdigest() for name in extensions):
        digest.update(content.encode())
    return digest.hexdigest()


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def parse_metrics(given: object) -> Mapping[str, Json]:
    """What a worker says of its state now; nothing where it says nonsense."""
    if not isinstance(given, dict):
        return {}
    kept: dict[str, Any] = {
        str(name): one for name, one in given.items() if isinstance(one, (str, int, float, bool, type(None)))
    }
    return kept
