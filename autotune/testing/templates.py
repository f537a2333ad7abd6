"""The contracts of operators and templates, on workloads of their author's."""

from __future__ import annotations

import random
from collections.abc import Sequence

from autotune.codegen.kernel import generate
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.runner import Runner
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import MeasureInput
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces import Config, make_schedule
from autotune.search_spaces.space.registry import Template, lookup, task_space
from autotune.search_spaces.space.replay import Recorded, confirm
from autotune.target import Target
from autotune.testing.says import says

_MAY_BE_REFUSED = ("schedule", "lower", "compile")  # kinds of failures that a space may hold, but for its default
_QUICK = TimingPolicy(rounds=1, most_rounds=1, max_seconds=0.05)


def check_operator(
    workload: str, *, target: str | Target | None = None, samples: int = 4, seed: int = 0, imports: Sequence[str] = ()
) -> None:
    """Check that an operator can be tuned: `check_template` for each template that applies, the general ones included.

    Args:
        workload: as on the command line, e.g. "l1_distance x=64,32 codebook=16,32".
        target: as for `autotune.compile`; it must be able to run here.
        samples: random configs of each template.
        seed: of the configs and of the inputs.
        imports: modules or Python files that register what is checked, unless a plugin does.

    Raises:
        AssertionError: it does not keep the contract.
        AutotuneError: there is no such operator, or the shapes are impossible.
    """
    parsed = parse_workload(workload)
    with says(f"{workload}: its identity"):
        assert Workload.from_json(parsed.to_json()) == parsed, "it does not come back from JSON"
        assert parse_workload(workload).key == parsed.key, "it has two keys"
    machine = Target.parse(target)
    with _Checks(machine, samples, seed, imports) as checks:
        for name in task_space(parsed, machine).members:
            checks.template(lookup(name), workload)


def check_template(
    name: str,
    workloads: Sequence[str],
    *,
    target: str | Target | None = None,
    samples: int = 16,
    seed: int = 0,
    imports: Sequence[str] = (),
) -> None:
    """Check a template on workloads that it is for: its default and random configs of its space.

    Each config comes back from JSON, gives the same code each time, and gives it from its stored steps alone, as
    records do. Each kernel is built and run in processes of their own, with guarded memory and on several threads, and
    compared with the definition in float64. A config may be refused, by a schedule step or by the compiler, unless it
    is the default.

    Args: as for `check_operator`.

    Raises:
        AssertionError: it does not keep the contract.
        AutotuneError: there is no such template or operator.
    """
    template = lookup(name)
    with _Checks(Target.parse(target), samples, seed, imports) as checks:
        for workload in workloads:
            checks.template(template, workload)


class _Checks:
    """The processes that build and run, and what is checked with them."""

    def __init__(self, target: Target, samples: int, seed: int, imports: Sequence[str]) -> None:
        self.target, self.samples, self.seed = target, samples, seed
        self.builder = Builder(imports=tuple(imports))
        self.runner = Runner(target, _QUICK, seed=seed, imports=tuple(imports))

    def __enter__(self) -> _Checks:
        return self

    def __exit__(self, *unused: object) -> None:
        self.builder.close()
        self.runner.close()

    def template(self, template: Template, text: str) -> None:
        """The contract of a template, on one workload."""
        workload, refused = parse_workload(text), 0
        with says(f"{template.name} on {text}"):
            assert template.applies(workload, self.target), "it does not apply"
            configs = _configs(template, workload, self.target, self.samples, self.seed)
        for config in configs:
            with says(f"{template.name} on {text} with {config.to_json()}"):
                refused += self._refused(workload, config, is_default=config == configs[0])
        with says(f"{template.name} on {text}"):
            assert 2 * refused <= len(configs), f"{refused} of {len(configs)} configs are refused: shrink its space"

    def _refused(self, workload: Workload, config: Config, *, is_default: bool) -> bool:
        """Whether the config is refused, which it may be; anything else that is wrong is an error."""
        assert Config.from_json(config.to_json()) == config, "it does not come back from JSON"
        candidate = MeasureInput(workload, config, None, self.target)
        built = self.builder.build(candidate)
        if isinstance(built, Failure):
            assert built.kind in _MAY_BE_REFUSED, f"{built.kind}: {built.message}"
            assert not is_default, f"the default is refused: {built.message}"
            return True

        def code(schedule: Schedule) -> str:
            return generate(schedule, self.target).ir_hash

        again = code(make_schedule(workload, config, self.target))
        assert again == built.kernel.ir_hash, "it gives other code each time: nothing random may decide a schedule"
        replayed = confirm(workload, Recorded(built.steps, built.algorithm, again), code)
        assert replayed.steps == built.steps, "its steps alone give another schedule"
        found = self.runner.run(candidate, built)
        assert not isinstance(found, Failure), f"{found.kind}: {found.message}"
        return False


def _configs(template: Template, workload: Workload, target: Target, samples: int, seed: int) -> list[Config]:
    """The default, and others, each once."""
    space, default = template.space(workload, target), template.default(workload, target)
    space.validate(default)
    rng = random.Random(seed)
    found = [default, *(space.sample(rng) for _ in range(samples))]
    return list(dict.fromkeys(config.replace(template=template.name) for config in found))
