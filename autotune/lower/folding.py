"""Which steps of a recurrence's tensors must be in memory: those that are still to be read (Halide: folding)."""

from __future__ import annotations

from autotune.schedule.state import StageState, State
from autotune.tensor.linear import to_linear
from autotune.tensor.recurrences import steps_behind
from autotune.tensor.stage import Tensor


def kept_steps(state: State) -> dict[str, tuple[int, int]]:
    """(dimension, steps) of the tensors that are kept for some steps only: step t lies where step t - steps lay.

    Between the last read of a step and the write that takes its place all threads meet.
    """
    found = {}
    for s in state.stages:
        if s.turn is None:
            continue
        d = [a.name for a in s.stage.axes].index(s.turn)
        for t in s.stage.outputs:
            kept = _kept(state, s, t, d)
            if kept is not None and kept < s.stage.axes[d].extent:
                found[t.name] = (d, kept)
    return found


def _kept(state: State, s: StageState, t: Tensor, d: int) -> int | None:
    """None when every step stays."""
    if t.name in state.outputs or state.layout(t).block(d) > 1:
        return None
    oldest = 0
    for reader in state.stages:
        if any(f.tensor == t.name for f in reader.prefetch):
            return None
        ranges = {a.name: (0, max(a.extent - 1, 0)) for a in reader.stage.all_axes}
        for r in reader.reads():
            if r.tensor.name != t.name:
                continue
            behind: int | None
            if reader.stage.recurrence == s.stage.recurrence:
                behind = steps_behind(reader.stage, r, s.stage)
            else:  # afterwards
                step = to_linear(r.indices[d], ranges)
                behind = s.stage.axes[d].extent - 1 - step.const if step.is_const else None
            if behind is None or behind < 0 or reader.stage.extern is not None:
                return None
            oldest = max(oldest, behind)
    return oldest + 1
