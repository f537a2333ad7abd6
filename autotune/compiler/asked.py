"""What helper processes are asked: choices and kernels, as JSON and bytes."""

from __future__ import annotations

import functools
from pathlib import Path

from autotune.codegen.helper import Reply
from autotune.codegen.kernel_json import kernel_to_json
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.kernel_cache import kernel_of
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces import Config, Interface, make_schedule
from autotune.search_spaces.space.registry import ranked_with_default
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target

MODULE = __name__

target_of = functools.lru_cache(maxsize=4)(Target.from_json)
cache_of = functools.lru_cache(maxsize=4)(ObjectCache)


def default(workload: str, target: str, strict_fp: bool, shared: bool) -> Reply:
    """`ranked_with_default`, as JSON."""
    names, config = ranked_with_default(
        Workload.from_json(workload), target_of(target), strict_fp=strict_fp, shared=shared
    )
    return {"config": config.to_json(), "templates": names}, b""


def kernel(
    workload: str, origin: str, is_recorded: bool, interface: str, target: str, folder: str | None, name: str | None
) -> Reply:
    """The kernel of a choice in some layouts, put into the cache in a folder under a name, where there are those."""
    wanted = target_of(target)
    schedule = _schedule(workload, origin, is_recorded, target, Interface.from_json(interface))
    found = kernel_of(schedule, wanted, None if folder is None else cache_of(Path(folder)), name)
    return kernel_to_json(found), found.object_code


def _schedule(workload: str, origin: str, is_recorded: bool, target: str, interface: Interface) -> Schedule:
    """Of a choice, by its `origin`: stored steps, or a config."""
    wanted = Workload.from_json(workload)
    if is_recorded:
        return Recorded.from_json(origin).schedule(wanted, interface)
    return make_schedule(wanted, Config.from_json(origin), target_of(target), interface)
