"""From ComputeDef and Schedule to a loop nest."""

from __future__ import annotations

import re
from dataclasses import replace

from autotune.lower import coupling as _coupling  # noqa: F401  registers its nest
from autotune.lower import determinant as _determinant  # noqa: F401  registers its nest
from autotune.lower import inverse as _inverse  # noqa: F401  registers its nest
from autotune.lower import scatter as _scatter  # noqa: F401  registers its nests
from autotune.lower import top_k as _top_k  # noqa: F401  registers its nest
from autotune.lower import trees as _trees  # noqa: F401  registers its nest
from autotune.lower.build import NestBuilder
from autotune.lower.coming import spread
from autotune.lower.ir import LoopProgram
from autotune.lower.lanes import some_lane
from autotune.lower.partial_sums import in_parts
from autotune.lower.partition import partition
from autotune.lower.printer import print_program
from autotune.lower.simplify import simplify
from autotune.lower.starts import started
from autotune.lower.verify import verify
from autotune.schedule.schedule import Schedule

__all__ = ["LoopProgram", "lower", "print_program"]


def lower(schedule: Schedule, name: str = "kernel", *, check: bool = True) -> LoopProgram:
    """The loop nest of a schedule.

    Args:
        schedule: what to compute, and how.
        name: symbol of the kernel.
        check: verify the IR after every pass.

    Raises:
        LoweringError: when a pass produced malformed IR, or a `pad` step would touch memory that does not exist.
    """
    state = schedule.state
    builder = NestBuilder(state)
    symbol = re.sub(r"\W", "_", name)
    nest = builder.kernel()
    program = LoopProgram(symbol, builder.operands, tuple(builder.buffers.values()), nest)
    cut = frozenset(s.variable(loop) for s in state.stages for loop in s.partitioned)
    passes = (
        ("build", lambda body: body),
        ("simplify", simplify),
        ("partition", lambda body: simplify(partition(body, cut)) if cut else body),
        ("lanes", some_lane),
        ("coming", spread),
    )
    for title, run in passes:
        program = replace(program, body=run(program.body))
        if check:
            verify(program, title)
    amplified = {t.name: s.stage.amplified for s in state.stages for t in s.stage.outputs}
    program = started(in_parts(program, amplified))
    return verify(program, "sums") if check else program
