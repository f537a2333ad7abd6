"""Code version: equal versions turn a config into equal code, so nobody has to lower it again to find out.

What a config becomes is decided by the sources of autotune between the two and by LLVM; a hash of them needs no number
that somebody must remember to raise. The sources of the user's own operators and templates are not ours to follow.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import llvmlite
import numpy as np

from autotune.cost_model.prior_files import prior_key
from autotune.errors import ConfigError
from autotune.ops import registry as operators
from autotune.ops.workload import Workload
from autotune.plugins import is_ours
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.registry import lookup, names
from autotune.sources import hash_of

# The rooms that a kernel passes through on its way from a config to code, and what these may ask: facts about the
# target, and the cost model, which chooses defaults.
ROOMS = (
    "tensor", "ops", "schedule", "lower", "codegen", "search_spaces", "target", "cores", "core", "cpus", "machine",
    "topology", "cost_model", "packages", "plugins", "sources",
)  # fmt: skip


def code_version(workload: Workload, config: Config | None) -> str | None:
    """A hash of all that decides what the config, or stored steps (None), becomes; None when that cannot be told."""
    return source_hash() if _comes_with_autotune(workload, config) else None


@functools.cache
def source_hash() -> str | None:
    """64 hex digits over our sources, and the versions of LLVM and NumPy; None where sources cannot be read."""
    return hash_of(Path(operators.__file__).parent.parent, ROOMS, llvmlite.__version__, np.__version__)


def version_mark(workload: Workload, config: Config) -> str:
    """What a record's version ends with when its config surely gives the same code as today; empty: build it to see."""
    version = code_version(workload, config)
    return "" if version is None else f"+{version[:16]}"


def untuned_mark(workload: Workload, strict_fp: bool) -> str:
    """A hash of all that decides, beside workload and target, which config a kernel has without a record: our sources,
    templates, which may be a user's, and models; empty when that cannot be told."""
    version = code_version(workload, None)
    if version is None:
        return ""
    parts = (version, " ".join(names()), prior_key(), str(strict_fp))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _comes_with_autotune(workload: Workload, config: Config | None) -> bool:
    try:
        makers: list[Callable[..., object]] = [type(lookup(config.template or "").rules)] if config is not None else []
    except ConfigError:
        return False
    makers += [operators.lookup(node.op).compute for node in workload.nodes]
    return all(map(is_ours, makers))
