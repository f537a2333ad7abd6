"""Measured configs of many tasks in a small file, so that what a model learned from them can be learned again.

Configs are kept, not the features that a model sees of them: features follow from configs in closed form, and a later
version has more of them. A file is compressed JSON lines: the targets, then a line for each task and template. Times
of every template are in it; lessons are made of those whose features carry over between tasks.
"""

from __future__ import annotations

import json
import lzma
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.cost_model.training import Lesson
from autotune.errors import AutotuneError, CostModelError
from autotune.ops import parse_workload
from autotune.search.learning import lesson_of, times_today
from autotune.search_spaces.space.config import Config
from autotune.target import Target

FORMAT = 1
MOST_BYTES = 256 << 20
"""What a file may unpack to: a hundred times what ours do."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What was measured of one task with one template.

    Attributes:
        workload: its line, as `autotune tune --op` reads it.
        target: that it was measured on. `template`: whose configs they are.
        seconds: by config, without the template's name; infinity where it failed.
    """

    workload: str
    target: Target
    template: str
    seconds: Mapping[Config, float]

    def lesson(self) -> Lesson | None:
        """Of the configs that the template's space still has; None where their features do not carry over."""
        return lesson_of(
            f"{self.workload} on {self.target}", parse_workload(self.workload), self.target, self.template, self.seconds
        )

    def today(self) -> Measured:
        """Of the configs that the template's space still has, with the knobs that it got since; perhaps none."""
        workload = parse_workload(self.workload)
        return replace(self, seconds=times_today(self.workload, workload, self.target, self.template, self.seconds))


def save(path: Path, measured: Iterable[Measured]) -> None:
    """Writes the file in one step; tasks that are there twice are merged, the lower time of a config counts."""
    tasks: dict[tuple[str, str, str], Measured] = {}
    for one in measured:
        key = (one.workload, one.target.to_json(), one.template)
        known = tasks[key].seconds if key in tasks else {}
        lower = {c: min(s, known.get(c, math.inf)) for c, s in one.seconds.items()}
        tasks[key] = Measured(one.workload, one.target, one.template, {**known, **lower})
    targets = list(dict.fromkeys(target for _, target, _ in tasks))
    lines = [json.dumps({"format": FORMAT, "targets": targets})]
    lines += [_to_line(one, targets.index(target)) for (_, target, _), one in tasks.items()]
    part = path.with_name(path.name + ".part")
    part.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9))
    os.replace(part, path)


def load(path: Path) -> list[Measured]:
    """What `save` wrote.

    Raises:
        CostModelError: it cannot be read, or is no such file.
    """
    try:
        unpacked = lzma.LZMADecompressor()
        text = unpacked.decompress(path.read_bytes(), MOST_BYTES)
        if not unpacked.eof:
            raise ValueError("it ends early, or is too large")
        header, *lines = text.decode().splitlines()
        about = json.loads(header)
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, not {FORMAT}")
        targets = [Target.from_json(target) for target in about["targets"]]
        return [_from_line(json.loads(line), targets) for line in lines]
    except OSError as error:
        raise CostModelError(f"cannot read the lessons {path}: {error.strerror}") from None
    except (lzma.LZMAError, ValueError, LookupError, TypeError, AttributeError, AutotuneError) as error:
        raise CostModelError(f"{path} is damaged or holds no lessons ({error}); measure them again") from None


def _to_line(one: Measured, target: int) -> str:
    names = sorted({name for config in one.seconds for name in config})
    columns: dict[str, Any] = {}
    for name in names:
        values = list(dict.fromkeys(config.get(name) for config in one.seconds))
        columns[name] = [values, [values.index(config.get(name)) for config in one.seconds]]
    seconds = [float(f"{s:.4g}") if math.isfinite(s) else None for s in one.seconds.values()]
    line = {"workload": one.workload, "target": target, "template": one.template, "knobs": columns, "seconds": seconds}
    return json.dumps(line, separators=(",", ":"))


def _from_line(line: Mapping[str, Any], targets: Sequence[Target]) -> Measured:
    seconds = [math.inf if s is None else float(s) for s in line["seconds"]]
    rows: list[dict[str, Any]] = [{} for _ in seconds]
    for name, (values, places) in line["knobs"].items():
        for row, place in zip(rows, places, strict=True):
            if values[place] is not None:
                row[name] = values[place]
    found = dict(zip(map(Config.of, rows), seconds, strict=True))
    return Measured(str(line["workload"]), targets[line["target"]], str(line["template"]), found)
