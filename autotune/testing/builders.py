"""The contract of a builder (`autotune.measure.builder.AskedBuilder`)."""

from __future__ import annotations

from dataclasses import replace

from autotune.measure.builder import AskedBuilder
from autotune.measure.failure import Failure
from autotune.measure.types import BuildResult, MeasureInput
from autotune.ops import parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from autotune.search_spaces import Config, default_config
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target
from autotune.testing.says import says

WORKLOAD = "matmul a=7,33 b=33,20"


def check_builder(builder: AskedBuilder, *, workload: str = WORKLOAD, target: str | Target | None = None) -> None:
    """Check that a builder gives the same kernel for the same candidate, and a failure of the right kind for others.

    Args:
        workload: as on the command line.
        target: as for `autotune.compile`; the builder has to make code for it.

    Raises:
        AssertionError: it does not keep the contract.
    """
    wanted, parsed = Target.parse(target), parse_workload(workload)
    candidate = MeasureInput(parsed, default_config(parsed, wanted), None, wanted)
    with says(f"the default of {workload}"):
        built = _built(builder, candidate)
        assert built.kernel.object_code.startswith(b"\x7fELF"), "its code is no object file"
        assert built.seconds > 0, "it took no time"
        replayed = Schedule.replay(compute_def(parsed, built.algorithm), built.steps)
        assert replayed.steps_json() == built.steps, "its steps give another schedule"
    with says(f"the default of {workload}, again"):
        again = _built(builder, replace(candidate))
        assert again.kernel.ir_hash == built.kernel.ir_hash, "it is other code"
    with says(f"the stored steps of {workload}"):
        gone = replace(candidate, config=Config.of(template="nobody.knows"))
        steps = Recorded(built.steps, built.algorithm, built.kernel.ir_hash)
        assert _built(builder, replace(gone, recorded=steps)).kernel == built.kernel, "they give another kernel"
        other = replace(gone, recorded=replace(steps, ir_hash="0" * len(steps.ir_hash)))
        _refused(builder, other, "code that is not what was measured")
    with says(f"a config that {workload} does not have"):
        _refused(builder, replace(candidate, config=candidate.config.replace(nobody_knows=1)), "an unknown knob")
        _refused(builder, gone, "an unknown template")
    with says("several at once"):
        waiting = [builder.submit(one) for one in (candidate, gone, candidate)]
        kinds = [type(one.result()) for one in waiting]
        assert kinds == [BuildResult, Failure, BuildResult], "answers are not those of their requests"


def _built(builder: AskedBuilder, candidate: MeasureInput) -> BuildResult:
    found = builder.build(candidate)
    assert isinstance(found, BuildResult), f"{found.kind}: {found.message}"
    return found


def _refused(builder: AskedBuilder, candidate: MeasureInput, why: str) -> None:
    found = builder.build(candidate)
    assert isinstance(found, Failure), f"it builds {why}"
    assert found.kind == "schedule", f"{why} is a failure of kind {found.kind}: {found.message}"
