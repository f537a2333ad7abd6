"""What helper processes are asked: choices, layouts and kernels, as JSON and bytes."""

from __future__ import annotations

import functools
from pathlib import Path

from autotune.codegen.helper import Reply
from autotune.codegen.kernel_json import kernel_to_json
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.kernel_cache import kernel_of
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, Interface, default_config, make_schedule
from autotune.target import Target

MODULE = __name__

target_of = functools.lru_cache(maxsize=4)(Target.from_json)
cache_of = functools.lru_cache(maxsize=4)(ObjectCache)


def default(workload: str, target: str, strict_fp: bool) -> Reply:
    """`default_config`, as JSON."""
    config = default_config(Workload.from_json(workload), target_of(target), strict_fp=strict_fp)
    return {"config": config.to_json()}, b""


def layouts(workload: str, config: str, target: str) -> Reply:
    """The layouts that a config has by itself, as JSON."""
    schedule = make_schedule(Workload.from_json(workload), Config.from_json(config), target_of(target))
    return {"layouts": Interface(schedule.layouts).to_json()}, b""


def kernel(workload: str, config: str, interface: str, target: str, folder: str | None, name: str | None) -> Reply:
    """The kernel of a config in some layouts, put into the cache in a folder under a name, where there are those."""
    wanted = target_of(target)
    form = Interface.from_json(interface)
    schedule = make_schedule(Workload.from_json(workload), Config.from_json(config), wanted, form)
    found = kernel_of(schedule, wanted, None if folder is None else cache_of(Path(folder)), name)
    return kernel_to_json(found), found.object_code
