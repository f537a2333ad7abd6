"""SpaceRecording: a task's space as it was measured once, in a file, so that a search can be replayed without kernels.

The file is compressed JSON lines: a header, then one line per config. It needs no template to be read, and it carries
what the cost model saw of each config, so a recording outlives the spaces that it was made from. The steps of
each schedule are in it, too: features of another kind can be made of them later.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import MeasureError
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config

FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPoint:
    """One config and what became of it.

    Attributes:
        features: float32, what `Space.encode` said of it; NaN where a feature does not apply.
        spills, fmas: counted in its code; 0 where there is none.
        ir_hash: identity of its code, 16 hex digits; configs of equal code were timed once. Empty without a build.
        steps: canonical JSON of its schedule; empty without a build.
    """

    trial: Trial
    features: NDArray[np.float32]
    spills: int = 0
    fmas: int = 0
    ir_hash: str = ""
    steps: str = ""

    @property
    def config(self) -> Config:
        return self.trial.config


@dataclass(frozen=True, slots=True, eq=False)
class SpaceRecording:
    """
    Attributes:
        name: of the task, for people; `workload`: its line, as `tune --op` reads it.
        target: the text of the target that it was measured on.
        feature_names: of the columns of every point's features.
        defaults: keys of the space's first guesses, the default first.
        weights: how often the space samples a template; empty when it has no templates.
        complete: every valid config of the space is a point; else the points are a random sample.
        settled: the best points were timed again, in turn.
        points: by config key.
        about: where and with what it was measured.
    """

    name: str
    workload: str
    target: str
    feature_names: tuple[str, ...]
    defaults: tuple[str, ...]
    weights: Mapping[str, float]
    complete: bool = False
    settled: bool = False
    points: Mapping[str, RecordedPoint] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)

    def with_points(self, *points: RecordedPoint, **changes: Any) -> SpaceRecording:
        """More points, or better measurements of some; and other fields."""
        return replace(self, points={**self.points, **{point.config.key: point for point in points}}, **changes)

    def save(self, path: Path) -> None:
        """Writes the file in one step: whoever reads it, or is killed writing it, has the old one or the new."""
        header = {
            "format": FORMAT,
            "name": self.name,
            "workload": self.workload,
            "target": self.target,
            "features": self.feature_names,
            "defaults": self.defaults,
            "weights": dict(self.weights),
            "complete": self.complete,
            "settled": self.settled,
            "about": dict(self.about),
        }
        lines = [json.dumps(header), *(_to_line(point) for point in self.points.values())]
        part = path.with_name(path.name + ".part")
        part.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
        os.replace(part, path)

    @staticmethod
    def load(path: Path) -> SpaceRecording:
        """Reads what `save` wrote; MeasureError when the file is anything else."""
        try:
            header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
            about = json.loads(header)
            if about["format"] != FORMAT:
                raise ValueError(f"it has format {about['format']}, not {FORMAT}")
            names = tuple(about["features"])
            points = [_from_line(line, len(names)) for line in lines]
            return SpaceRecording(
                name=about["name"],
                workload=about["workload"],
                target=about["target"],
                feature_names=names,
                defaults=tuple(about["defaults"]),
                weights=about["weights"],
                complete=about["complete"],
                settled=about["settled"],
                points={point.config.key: point for point in points},
                about=about["about"],
            )
        except OSError as error:
            reason = error.strerror or str(error)  # gzip's own errors have no number
            raise MeasureError(f"cannot read the recorded space {path}: {reason}") from None
        except (EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise MeasureError(f"{path} is damaged or no recorded space ({error}); record it anew") from None


def _to_line(point: RecordedPoint) -> str:
    features = [None if np.isnan(value) else float(f"{value:.8g}") for value in point.features.tolist()]
    seconds = None if point.trial.seconds is None else float(f"{point.trial.seconds:.5g}")
    values = [seconds, point.trial.failure, dict(point.config), point.spills, point.fmas, point.ir_hash]
    return json.dumps([*values, features, point.steps], separators=(",", ":"))


def _from_line(line: str, width: int) -> RecordedPoint:
    seconds, failure, config, spills, fmas, ir_hash, features, steps = json.loads(line)
    values = np.array([np.nan if value is None else value for value in features], np.float32)
    if values.shape != (width,):
        raise ValueError(f"a point has {len(values)} features, the header names {width}")
    return RecordedPoint(Trial(Config.of(config), seconds, failure), values, spills, fmas, ir_hash, steps)
