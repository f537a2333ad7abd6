"""The most fp32 GFLOP/s that this machine was seen to reach: what its later peaks are held against.

A peak is a most, so that what was reached once can be reached, and a measurement that stays below was disturbed: by
another program, by the host of a virtual machine, by heat. Which of them, no counter has to say. A file in the user's
cache folder remembers; `autotune machine --measure` forgets, for machines that have become slower.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from pathlib import Path

from autotune import machine
from autotune.target import Target

_log = logging.getLogger(__name__)
_VERSION = 1


def seen_peak(target: Target) -> float:
    """Of all threads of a target; 0 where it was never measured, or is no target of this machine's own CPU."""
    path = _path()
    if path is None or target.cpu != machine.cpu_name():
        return 0.0
    return _read(path).get(_name(target), 0.0)


def keep_peak(target: Target, gflops: float) -> None:
    """Remembers what was reached, where it is more than before. That it cannot be written is no error."""
    path = _path()
    if path is None or target.cpu != machine.cpu_name() or not math.isfinite(gflops):
        return
    known = _read(path)
    if gflops <= known.get(_name(target), 0.0):
        return
    text = json.dumps({**_about(), "peaks": known | {_name(target): gflops}}, indent=1)
    try:
        machine.write_whole(path, f"{text}\n".encode())
    except OSError as error:
        _log.info("%s cannot be written: %s", path, error.strerror)


def forget_peaks() -> None:
    """Forgets all that this machine has reached."""
    path = _path()
    if path is not None:
        path.unlink(missing_ok=True)


def _path() -> Path | None:
    """A file for each kind of machine: a home folder may be that of several."""
    folder = machine.user_cache(machine.environment())
    mark = hashlib.sha256(json.dumps(_about()).encode()).hexdigest()[:12]
    return None if folder is None else folder / "cores" / f"peaks-{mark}.json"


def _name(target: Target) -> str:
    return f"{target.num_threads} x {target.vector_bits} bits"


def _about() -> dict[str, object]:
    """What a file holds for."""
    return {"version": _VERSION, "model": machine.model_name(), "features": list(machine.cpu_features())}


def _read(path: Path) -> dict[str, float]:
    """Nothing where the file is not there, is damaged, or another machine's."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    match values:
        case {"peaks": dict(peaks), **about} if about == _about():
            return {name: rate for name, rate in peaks.items() if isinstance(rate, float) and 0 < rate < math.inf}
    return {}
