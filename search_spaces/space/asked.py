"""What a helper process is asked."""

from __future__ import annotations

from typing import Any

from autotune.ops.workload import Workload
from autotune.search_spaces import default_config
from autotune.target import Target


def default_of(workload: str, target: str, strict_fp: bool) -> tuple[dict[str, Any], bytes]:
    """`default_config` of what JSON describes, as JSON."""
    config = default_config(Workload.from_json(workload), Target.from_json(target), strict_fp=strict_fp)
    return {"config": config.to_json()}, b""
