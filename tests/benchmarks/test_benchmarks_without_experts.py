"""What models take without templates of one operator's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from autotune import machine
from benchmarks import without_experts

SHOW = """

from autotune.ops import parse_workload
from autotune.search_spaces import templates_for
from autotune.target import Target
conv = parse_workload("conv2d data=1,16,14,14 weight=16,16,3,3 pad=1")
print([entry.name for entry in templates_for(conv, Target.parse("x86 -mcpu=haswell"))])
"""


def test_the_plugin_leaves_sketches(tmp_path: Path) -> None:
    variables = {**machine.environment(), **without_experts.installed(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env=variables, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = set(json.loads(done.stdout.replace("'", '"')))
    assert {"sketch.contraction", "conv2d.winograd_f4_matrices", "generic", "plain"} <= names
    assert not names & {"conv2d.direct", "conv2d.winograd_f4"}
