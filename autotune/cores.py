"""Where a `Core` is from: measured on this machine, else shipped for CPUs that are known, else from the features.

Measured figures lie in a file per CPU name in the user's cache folder (`autotune machine --measure` writes it). It
holds for the CPU that it names, by model and features; any other, or of another version, is passed over with a warning.
"""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.core import Core, core_of_features, has_instruction, vector_bits_of
from autotune.errors import TargetError
from autotune.machine import Machine, user_cache, write_whole

_log = logging.getLogger(__name__)
_VERSION = 2
_FIELDS = ("version", "cpu", "model", "features", "core")
_PEAKS = "peaks"  # GFLOP/s by threads, which files of before do not have


@dataclass(frozen=True, slots=True)
class _Known:
    """An entry of known_cores.json."""

    cpus: tuple[str, ...]
    without: frozenset[str]
    marks: frozenset[str]
    core: Core
    narrow: Core


def core_of(cpu: str, features: Collection[str]) -> Core:
    """What is known of a CPU by LLVM's name and its features, as shipped; else what follows from the features.

    The name alone decides nothing: a hypervisor may lend a CPU the name of another.
    """
    has = set(features)
    fitting = (known for known in _shipped() if cpu in known.cpus and not known.without & has)
    marked = (known for known in _shipped() if known.marks and known.marks <= has)
    found = next(fitting, None) or next(marked, None)
    if found is None:
        return core_of_features(has, vector_bits_of(has))
    return _masked(found, has)


def core_of_host(host: Machine, env: Mapping[str, str]) -> Core:
    """The core of this machine: as measured, else what `core_of` knows."""
    path = measured_path(host.cpu, env)
    measured = None
    try:
        if path is not None:
            measured = _read(path, path.stat().st_mtime_ns, host.cpu, host.model, host.features)
    except OSError:  # never measured, or not ours to read
        pass
    return measured or core_of(host.cpu, host.features)


def measured_path(cpu: str, env: Mapping[str, str]) -> Path | None:
    """The file for measured figures of a CPU by LLVM's name; None without a home folder."""
    folder = user_cache(env)
    return None if folder is None else folder / "cores" / f"{cpu}.json"


def keep_measured(core: Core, host: Machine, env: Mapping[str, str]) -> Path:
    """Writes the file that `core_of_host` reads.

    Raises:
        TargetError: there is no home folder, or the file cannot be written.
    """
    path = measured_path(host.cpu, env)
    if path is None:
        raise TargetError("measured figures have no place: set HOME or XDG_CACHE_HOME")
    values = (_VERSION, host.cpu, host.model, list(host.features), core.to_values())
    text = json.dumps({**dict(zip(_FIELDS, values, strict=True)), _PEAKS: dict(core.peaks)}, indent=1)
    try:
        write_whole(path, f"{text}\n".encode())
    except OSError as error:
        raise TargetError(f"measured figures cannot be written to {path}: {error.strerror}") from None
    return path


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed: int, cpu: str, model: str, features: tuple[str, ...]) -> Core | None:
    """The core in a file, None with a warning where it is damaged or another CPU's; once per state of the file."""
    try:
        values = json.loads(path.read_text())
        if not isinstance(values, dict) or values.keys() - {_PEAKS} != set(_FIELDS):
            raise TargetError(f"it must be an object with exactly {', '.join(_FIELDS)}")
        if values["version"] != _VERSION:
            raise TargetError(f"it is of version {values['version']!r}, and this is version {_VERSION}")
        if (values["cpu"], values["model"], values["features"]) != (cpu, model, list(features)):
            raise TargetError(f"it was measured on {values['model']}, this is {model} with its present features")
        return replace(Core.from_values(values["core"], "measured"), peaks=_peaks(values.get(_PEAKS, {})))
    except (ValueError, OSError, TargetError) as error:
        _log.warning("%s is not used: %s; `autotune machine --measure` writes it anew", path, error)
        return None


def _peaks(values: object) -> tuple[tuple[int, float], ...]:
    try:
        found = {int(threads): float(gflops) for threads, gflops in dict(values).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise TargetError(f"{_PEAKS} must be GFLOP/s by the number of threads") from None
    if not all(threads > 0 and 0 < gflops < math.inf for threads, gflops in found.items()):
        raise TargetError(f"{_PEAKS} must be positive numbers")
    return tuple(sorted(found.items()))


@functools.cache
def _shipped() -> tuple[_Known, ...]:
    values = json.loads(Path(__file__).with_name("known_cores.json").read_text())
    return tuple(
        _Known(
            tuple(entry["cpus"]),
            frozenset(entry.get("without", ())),
            frozenset(entry.get("marks", ())),
            _shipped_core(entry["core"]),
            _shipped_core({**entry["core"], **entry.get("narrow", {})}),
        )
        for entry in values["cores"]
    )


def _shipped_core(values: Mapping[str, Any]) -> Core:
    return Core.from_values({**values, "pipes": _pipes(values["pipes"])}, "shipped")


def _pipes(kinds: Mapping[str, Mapping[str, dict[str, float]]]) -> list[dict[str, object]]:
    """From the shipped form, which has one entry per kind, to one per kind and width."""
    return [
        {"kind": kind, "bits": int(bits), "per_cycle": per_cycle, "latency": entry["latency"]}
        for kind, entry in kinds.items()
        for bits, per_cycle in entry["per_cycle"].items()
    ]


def _masked(known: _Known, features: Collection[str]) -> Core:
    """Without the instructions that this CPU has not, or hides; what it loads is counted in vectors that it has."""
    core, bits = known.core, vector_bits_of(features)
    if core.pipe("fma.f32", 2 * bits) is not None:
        core = replace(known.narrow, l1=min(core.l1, known.narrow.loads * bits / 8))
    return replace(core, pipes=tuple(p for p in core.pipes if has_instruction(p.kind, p.bits, features)))
