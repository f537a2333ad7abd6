"""What kernels get without a record: remembered in the object cache and by records, and found on other cores, too."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable
from concurrent.futures import Future

from autotune.codegen.beside import Beside
from autotune.codegen.helper import Helper
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import asked
from autotune.errors import ConfigError
from autotune.ops.workload import Workload
from autotune.plugins import extended
from autotune.records import Database
from autotune.search_spaces import Config, check_config, task_space
from autotune.search_spaces.space.code_version import untuned_mark
from autotune.search_spaces.space.registry import ranked_with_default
from autotune.search_spaces.space.space import TaskSpace
from autotune.target import Target

Found = tuple[tuple[str, ...], Config]
"""The names of the templates that can compute a workload, the most promising first, and the default of the first."""

_LOOKED_AT = 32
"""How many of the fastest trials of a kernel are read in search of its default: to find that anew takes as long as
hundreds."""


class Defaults:
    """What kernels get without a record, from the cache, or found and put there: a learned model takes its time.

    Args:
        cache: None finds all anew.
        beside: where some can be found meanwhile.
        database: whose records are asked before anything is found; None asks none.
        shared: whether programs of other shapes are to read the same weights.
    """

    def __init__(
        self,
        cache: ObjectCache | None,
        target: Target,
        beside: Beside | None = None,
        database: Database | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self._cache, self._target, self._beside, self._database = cache, target, beside, database
        self._shared = shared
        self._found: dict[tuple[Workload, bool], Config] = {}
        self._order: dict[tuple[Workload, bool], tuple[str, ...]] = {}
        self._begun: dict[tuple[Workload, bool], Future[Found]] = {}

    def __call__(self, workload: Workload, strict: bool) -> Config:
        """The config. Raises WorkloadError: no template can compute the workload."""
        key = workload, strict
        if key in self._begun:
            assert self._beside is not None
            self._beside.finish()
            self._found[key] = self._keep(key, self._begun.pop(key).result())
        if key not in self._found:
            found = self._known(key)
            self._found[key] = self._keep(key, self._find(key, None)) if found is None else found
        return self._found[key]

    def space(self, workload: Workload, strict: bool) -> TaskSpace:
        """What may be tried, the most promising template first: their order is remembered as the first's default is.

        Raises WorkloadError: no template can compute the workload.
        """
        key = workload, strict
        untuned = self(*key)
        if key not in self._order:  # the config is a record's
            self._keep(key, self._find(key, None))
        return task_space(workload, self._target, strict_fp=strict, ranked=self._order[key], untuned=untuned)

    def ahead(self, wanted: Iterable[tuple[Workload, bool]]) -> None:
        """Have those begun that will be asked for, unless they are known: on all cores, when one is asked for."""
        if self._beside is None or extended():  # a helper has not what users have registered here
            return
        missing: list[tuple[Workload, bool]] = []
        for key in dict.fromkeys(wanted):
            found = self._known(key)
            if found is None:
                missing.append(key)
            else:
                self._found[key] = found
        self._beside.expect(len(missing))
        for key in missing:
            self._begun[key] = self._beside.submit(functools.partial(self._find, key))

    def _find(self, key: tuple[Workload, bool], helper: Helper | None) -> Found:
        workload, strict = key
        if helper is not None:
            reply = helper.call(
                f"{asked.MODULE}:default", workload.to_json(), self._target.to_json(), strict, self._shared
            )
            if reply is not None and "config" in reply[0]:
                return tuple(reply[0]["templates"]), Config.from_json(reply[0]["config"])
        return ranked_with_default(workload, self._target, strict_fp=strict, shared=self._shared)

    def _known(self, key: tuple[Workload, bool]) -> Config | None:
        """The config, where somebody has found it before."""
        found = self._recall(key)
        return self._recorded(key) if found is None else found

    def _recorded(self, key: tuple[Workload, bool]) -> Config | None:
        """The config of a trial that was untuned when it was made, where the same sources, templates and models would
        choose it today."""
        workload, strict = key
        mark = untuned_mark(workload, strict)
        if self._database is None or not mark:
            return None
        task = workload.key, self._target.key
        for trial in self._database.times(*task, _LOOKED_AT):
            record = self._database.timed(*task, trial)
            if record is not None and record.untuned_by == mark:
                with contextlib.suppress(ConfigError):  # whoever made the file
                    config = Config.from_json(record.config)
                    if not (check_config(workload, config, self._target).lone and self._shared):
                        return config
        return None

    def _recall(self, key: tuple[Workload, bool]) -> Config | None:
        name = self._name(key)
        kept = None if self._cache is None or name is None else self._cache.recall(name)
        if kept is None:
            return None
        text, *templates = kept.tobytes().decode().split("\n")
        self._order[key] = tuple(templates)
        return Config.from_json(text)

    def _keep(self, key: tuple[Workload, bool], found: Found) -> Config:
        """Remembers what was found; the config."""
        self._order[key], config = found
        name = self._name(key)
        if self._cache is not None and name is not None:
            self._cache.remember(name, "\n".join([config.to_json(), *found[0]]).encode())
        return config

    def _name(self, key: tuple[Workload, bool]) -> str | None:
        """Of the entry; None where nothing must be kept."""
        workload, strict = key
        mark = untuned_mark(workload, strict)
        if self._cache is None or not mark:
            return None
        kind = "untuned shared" if self._shared else "untuned"
        parts = (kind, mark, workload.to_json(), self._target.to_json())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
