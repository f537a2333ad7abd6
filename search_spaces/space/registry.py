"""Templates: the named ways to schedule a workload, and the one place that lists them.

A template is a class with four methods (`TemplateRules`) under `@template("conv2d.direct", op="conv2d")`.
The class is made once, without arguments, and holds no state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from autotune.cost_model.expected import expected_cycles, least_cycles
from autotune.errors import ConfigError, LoweringError, ScheduleError, WorkloadError
from autotune.lower import lower
from autotune.ops.registry import compute_def
from autotune.plugins import load_plugins, registered
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.space import ConfigSpace, Member, TaskSpace, suggest

if TYPE_CHECKING:
    from autotune.ops.workload import Workload
    from autotune.schedule import Schedule
    from autotune.search_spaces.space.interface import Interface
    from autotune.target import Target


PROMISED = 0.94
"""Of the time of the best other template, what a share of the plain sum's has to promise where threads share the work,
for its loops to be looked at: it says nothing of waiting. Measured, see docs/adr/0018."""


class TemplateRules(Protocol):
    """What the author of a template writes. Configs here carry no `template` entry."""

    def applies(self, workload: Workload, target: Target) -> bool:
        """Whether this template can compute the workload on the target. Cheap, never raises."""

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        """The knobs, for a workload it applies to."""

    def default(self, workload: Workload, target: Target) -> Config:
        """A valid config that is good without any measurement."""

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        """The schedule of one config; ScheduleError or ConfigError when it cannot be built."""


Priority = Callable[["Workload", "Target"], float]


@dataclass(frozen=True, slots=True)
class Template:
    """A registered template.

    Attributes:
        name: stable, stored in every config; renaming it orphans the records.
        op: the operator that the workload must contain; None leaves the decision to `applies`.
        weight: how often the search samples this template, against the others of the task.
        priority: the untuned choice is of the highest one; among equals, what should take the least time.
        strict: it multiplies what the definition multiplies, so that errors are those of another order of summation;
            Winograd's are larger (docs/adr/0007).
        lone: kernels whose extents a run decides cannot read weights as its kernels do: programs of a model of many
            shapes would hold all of them twice.
        stands_in_for: the name of another, where that applies this one is left out.
    """

    name: str
    op: str | None
    weight: float
    priority: Priority
    strict: bool
    lone: bool
    rules: TemplateRules
    stands_in_for: str = ""

    @property
    def algorithm(self) -> str | None:
        """By which all of its kernels are computed; None where that depends on the config."""
        found = getattr(self.rules, "algorithm", None)
        return found if isinstance(found, str) else None

    def algorithm_of(self, config: Config) -> str:
        """By which the kernel of a config is computed."""
        found = getattr(self.rules, "algorithm", "direct")
        return str(found(config) if callable(found) else found)

    def applies(self, workload: Workload, target: Target) -> bool:
        has_op = self.op is None or any(node.op == self.op for node in workload.nodes)
        return has_op and self.rules.applies(workload, target)

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return self.rules.space(workload, target)

    def default(self, workload: Workload, target: Target) -> Config:
        return self.rules.default(workload, target)

    def promising(self, workload: Workload, target: Target, count: int) -> list[Config]:
        """So many configs at most of which models expect the most, best first; none where models know nothing of it."""
        found = getattr(self.rules, "promising", None)
        return list(found(workload, target, count)) if found else []

    def instead(self, workload: Workload, target: Target) -> tuple[float, float, float] | None:
        """Where its kernels compute the sums of others, but fewer: the share of them that is left, the cycles of what
        they do besides, and those that the sums take at least."""
        found = getattr(self.rules, "instead", None)
        return found(workload, target) if found else None

    def schedule(
        self, workload: Workload, config: Config, target: Target, interface: Interface | None = None
    ) -> Schedule:
        return self.rules.schedule(workload, config, target, interface)


_TEMPLATES: dict[str, Template] = {}

RulesClass = TypeVar("RulesClass", bound="type[TemplateRules]")


def template(
    name: str,
    *,
    op: str | None,
    weight: float = 1.0,
    priority: float | Priority = 0.0,
    strict: bool = True,
    lone: bool = False,
    stands_in_for: str = "",
) -> Callable[[RulesClass], RulesClass]:
    """Class decorator that registers a template; see `Template` for the arguments."""

    def register(rules: RulesClass) -> RulesClass:
        if name in _TEMPLATES:
            raise ConfigError(f"there are two templates named {name!r}; rename {rules.__module__}.{rules.__qualname__}")
        registered(rules)
        rank = priority if callable(priority) else (lambda workload, target: priority)
        _TEMPLATES[name] = Template(name, op, weight, rank, strict, lone, rules(), stands_in_for)
        return rules

    return register


def lookup(name: str) -> Template:
    """The template of that name; ConfigError listing the known ones otherwise."""
    if name not in _TEMPLATES:
        load_plugins()
    if name not in _TEMPLATES:
        near = (
            suggest(name, list(_TEMPLATES)) or f"; `autotune tasks` lists those of a model ({len(_TEMPLATES)} in all)"
        )
        raise ConfigError(f"unknown template {name!r}{near}")
    return _TEMPLATES[name]


def names() -> tuple[str, ...]:
    """The names of all templates, sorted."""
    return tuple(sorted(_TEMPLATES))


def templates_for(
    workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False
) -> list[Template]:
    """The templates that can compute the workload, the untuned choice first; `strict_fp` leaves only strict ones, and
    `shared`, where programs of several shapes share weights, none that are `lone`."""
    first, others = _able(workload, target, strict_fp, shared)
    return _by_time(first, workload, target) + others


def _by_time(able: list[Template], workload: Workload, target: Target) -> list[Template]:
    """The one first whose default should take the least time; what cannot take less than the best so far is not
    lowered. What does something `instead` of the plain sum, by the same tiles, takes a share of that sum's time; of who
    would be first so, its loops are the second opinion, and the mean of both counts. Where threads share work it has
    to promise more, and the loops alone count, which say how evenly they do.
    """
    if len(able) < 2:
        return able
    instead = {entry: found for entry in able if (found := entry.instead(workload, target)) is not None}
    bounds = {entry: _least(entry, workload, target) for entry in able if entry not in instead}
    times, best = dict[Template, float](), math.inf
    for entry in sorted(bounds, key=lambda entry: bounds[entry]):
        times[entry] = bounds[entry] if bounds[entry] > best else _expected(entry, workload, target)
        best = min(best, times[entry])
    plain = [entry for entry in times if entry.algorithm in (None, "direct")] if instead else []
    usual = min((_expected(entry, workload, target) for entry in plain), default=math.inf)
    for entry, (share, besides, least) in instead.items():
        times[entry] = max(share * usual, least) + besides
        if target.num_threads > 1:
            promises = times[entry] < PROMISED * best
            times[entry] = _expected(entry, workload, target) if promises else times[entry] / PROMISED
        elif times[entry] < best:
            times[entry] = (times[entry] + _expected(entry, workload, target)) / 2
    return sorted(able, key=lambda entry: times[entry])


def _able(workload: Workload, target: Target, strict_fp: bool, shared: bool) -> tuple[list[Template], list[Template]]:
    """The templates that can compute the workload: of the highest priority, and the others, by theirs."""
    load_plugins()
    allowed = [
        entry for entry in _TEMPLATES.values() if (entry.strict or not strict_fp) and not (shared and entry.lone)
    ]
    own = {entry.name: entry.applies(workload, target) for entry in allowed if not entry.stands_in_for}
    # Who stands in is asked last: most need not be, and to look into an algorithm takes a while.
    wanted = [entry for entry in allowed if entry.stands_in_for and not own.get(entry.stands_in_for)]
    own |= {entry.name: entry.applies(workload, target) for entry in wanted}
    able = [entry for entry in allowed if own.get(entry.name)]
    ranks = {entry.name: entry.priority(workload, target) for entry in able}
    able.sort(key=lambda entry: -ranks[entry.name])
    count = sum(ranks[entry.name] == ranks[able[0].name] for entry in able)
    return able[:count], able[count:]


def _least(entry: Template, workload: Workload, target: Target) -> float:
    """No more cycles than `_expected` of any config."""
    return 0.0 if entry.algorithm is None else least_cycles(compute_def(workload, entry.algorithm), target)


@functools.lru_cache(maxsize=1024)
def _expected(entry: Template, workload: Workload, target: Target) -> float:
    """Cycles that the default of a template should take; infinity where it has no kernel."""
    try:
        schedule = _own_schedule(entry, workload, entry.default(workload, target), target)
        return expected_cycles(lower(schedule, check=False), target)
    except (ConfigError, ScheduleError, LoweringError):
        return math.inf


@functools.lru_cache(maxsize=64)
def _own_schedule(entry: Template, workload: Workload, config: Config, target: Target) -> Schedule:
    """In layouts that the template chooses. Remembered: who expects a template to be fast asks for them next."""
    return entry.schedule(workload, config, target)


def task_space(
    workload: Workload,
    target: Target,
    *,
    strict_fp: bool = False,
    ranked: Sequence[str] = (),
    untuned: Config | None = None,
) -> TaskSpace:
    """The union of the templates' spaces; WorkloadError when no template can compute the workload.

    Args:
        ranked: the names that `templates_for` gives, where they are known: to compare templates takes a while.
        untuned: what `default_config` gives, where it is known.
    """
    able = [lookup(name) for name in ranked] or templates_for(workload, target, strict_fp=strict_fp)
    return TaskSpace(
        {
            entry.name: Member(
                entry.space(workload, target),
                untuned.without(TEMPLATE)
                if untuned is not None and untuned.template == entry.name
                else functools.cache(functools.partial(entry.default, workload, target)),
                entry.weight,
                functools.partial(entry.promising, workload, target),
            )
            for entry in _some(able, workload)
        }
    )


def default_config(workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False) -> Config:
    """What an untuned kernel uses: the default of the first of `templates_for`, with its name in it."""
    return ranked_with_default(workload, target, strict_fp=strict_fp, shared=shared)[1]


def ranked_with_default(
    workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False
) -> tuple[tuple[str, ...], Config]:
    """The names of `templates_for`, and `default_config`; WorkloadError when no template can compute the workload."""
    able = _some(templates_for(workload, target, strict_fp=strict_fp, shared=shared), workload)
    return tuple(entry.name for entry in able), able[0].default(workload, target).replace(template=able[0].name)


def default_of(name: str, workload: Workload, target: Target) -> Config:
    """What an untuned kernel of one template uses, with its name in it.

    Raises:
        ConfigError: there is no such template, or it cannot compute the workload.
    """
    chosen = lookup(name)
    if not chosen.applies(workload, target):
        able = ", ".join(entry.name for entry in templates_for(workload, target)) or "none"
        raise ConfigError(f"template {name!r} cannot compute {workload.describe()} on this target; these can: {able}")
    return chosen.default(workload, target).replace(template=name)


def alike(workload: Workload, like: Config, target: Target, gap: float, own: Config | None = None) -> Config | None:
    """A config whose constants lie in memory as those of `like`, a config of the same operator on other extents.

    None where the template knows of none, or expects it to be slower than its default by more than `gap`, the logarithm
    of a ratio of times.

    Args:
        own: the workload's default, if it is known.
    """
    chosen = lookup(like.template) if like.template in names() else None
    if chosen is None or not chosen.applies(workload, target):
        return None
    if own is None or own.template != chosen.name:
        own = chosen.default(workload, target)
    found = chosen.space(workload, target).alike(like, gap, own.without(TEMPLATE))
    return None if found is None else found.replace(template=chosen.name)


def make_schedule(workload: Workload, config: Config, target: Target, interface: Interface | None = None) -> Schedule:
    """Rebuilds the schedule that a config describes.

    Raises:
        ConfigError: the config names no template, an unknown one, one that does not apply, or wrong knobs.
        ScheduleError: the template could not build it.
    """
    chosen = check_config(workload, config, target)
    if interface is None:
        return _own_schedule(chosen, workload, config.without(TEMPLATE), target)
    return chosen.schedule(workload, config.without(TEMPLATE), target, interface)


def check_config(workload: Workload, config: Config, target: Target) -> Template:
    """The template that the config names; its knobs are in that template's space.

    Raises:
        ConfigError: the config names no template, an unknown one, one that does not apply, or wrong knobs.
    """
    if config.template is None:
        raise ConfigError(f"the config does not name its template (knob {TEMPLATE!r}): {config.to_json()}")
    chosen = lookup(config.template)
    if not chosen.applies(workload, target):
        raise ConfigError(f"template {chosen.name!r} cannot compute {workload.describe()} on this target")
    chosen.space(workload, target).validate(config.without(TEMPLATE))
    return chosen


def _some(able: list[Template], workload: Workload) -> list[Template]:
    if not able:
        known = ", ".join(_TEMPLATES) or "none is registered"
        raise WorkloadError(f"no template can compute {workload.describe()}; known templates: {known}")
    return able
