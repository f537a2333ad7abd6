"""Recurrences: stages that run together, one step after the other, each step reading the results of earlier ones.

A scan carries one element along an axis. In a recurrence, several stages share a sequential axis, always their first,
and read any element that an earlier step computed: the cells of recurrent networks.

    h = state((steps, n), "f32", "h")
    before = compute((steps, n), lambda t, i: read(h, (t - 1, i), when=t >= 1, otherwise=0.0))
    fed = compute((steps, n), lambda t, i: sum_(R[i, k] * before[t, k.var], k))
    (result,) = recurrence([h], [compute((steps, n), lambda t, i: unary("tanh", x[t, i] + fed[t, i]))])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Read, rewrite
from autotune.tensor.linear import Linear, to_linear
from autotune.tensor.stage import Stage, Tensor, placeholder


def state(shape: Sequence[int], dtype: DType | str = DType.f32, name: str = "state") -> Tensor:
    """Stands for a tensor that `recurrence` will define; reads of it must be of earlier steps."""
    return placeholder(shape, dtype, name)


def recurrence(
    states: Sequence[Tensor], updates: Sequence[Tensor], also: Sequence[Tensor] = (), name: str = "recurrence"
) -> tuple[Tensor, ...]:
    """Tie stages into a recurrence: `states[n]` is `updates[n]`, read at earlier steps.

    Members are the updates, `also`, and every stage on the way to them that depends on a state. What lies before the
    first step is up to them: they read a state where `t >= 1` and something else otherwise.

    Args:
        states: from `state`, in the order of the updates.
        updates: computed tensors of the same shapes and dtypes.
        also: further tensors of the recurrence that are wanted as results.
        name: of the sequential loop.

    Returns:
        The updates, then `also`, as tensors that other stages may read.

    Raises:
        WorkloadError: when a state and its update differ in type, or a step would need a step that is not done.
    """
    for old, new in zip(states, updates, strict=True):
        if new.stage is None or (old.shape, old.dtype) != (new.shape, new.dtype):
            raise WorkloadError(
                f"{name}: the state {old.name} of {old.dtype}{list(old.shape)} is updated by {new.name} of "
                f"{new.dtype}{list(new.shape)}; both must be the same, and computed"
            )
    wanted = [*updates, *also]
    members = _members(wanted, states, name)
    renamed: dict[tuple[int, str], Tensor] = {}
    taken: set[str] = set()
    for stage in members:
        for t in stage.outputs:
            free, n = t.name, 1
            while free in taken:
                free, n = f"{t.name}_{n}", n + 1
            taken.add(free)
            renamed[(id(stage), t.name)] = Tensor(free, t.shape, t.dtype)
    defined = {id(old): renamed[(id(new.stage), new.name)] for old, new in zip(states, updates, strict=True)}

    def tie(e: Expr) -> Expr | None:
        if not isinstance(e, Read):
            return None
        target = defined.get(id(e.tensor)) or renamed.get((id(e.tensor.stage), e.tensor.name))
        return None if target is None else replace(e, tensor=target)

    tied = []
    for stage in members:
        outputs = tuple(renamed[(id(stage), t.name)] for t in stage.outputs)
        body = tuple(rewrite(b, tie) for b in stage.body)
        tied.append(replace(stage, outputs=outputs, body=body, scan_axis=stage.axes[0].name, recurrence=name))
    check_steps(tied)
    for stage in tied:
        stage.members.extend(tied)
    of = {id(old): new for old, new in zip(members, tied, strict=True)}
    return tuple(replace(renamed[(id(t.stage), t.name)], stage=of[id(t.stage)]) for t in wanted)


def check_steps(members: Sequence[Stage]) -> None:
    """Every read of a member is of an earlier step, or of an earlier member at the same step.

    Raises:
        WorkloadError: naming the first read that is not.
    """
    place = {t.name: n for n, s in enumerate(members) for t in s.outputs}
    for n, stage in enumerate(members):
        steps = stage.axis(str(stage.scan_axis))
        for r in stage.reads():
            if r.tensor.name not in place or r.tensor.stage is not None:
                continue
            behind = steps_behind(stage, r, members[place[r.tensor.name]])
            if behind is None or behind < 0 or (behind == 0 and place[r.tensor.name] >= n):
                raise WorkloadError(
                    f"{stage.name} reads `{r}`, which is not computed yet at step {steps.name} of "
                    f"{stage.recurrence}; read a state at {steps.name} - 1, or a tensor computed before"
                )


def steps_behind(stage: Stage, r: Read, producer: Stage) -> int | None:
    """How many steps before its own a member reads another one; None when that is not the same at every step."""
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in stage.all_axes}
    d = [a.name for a in producer.axes].index(str(producer.scan_axis))
    distance = Linear.var(str(stage.scan_axis)) - to_linear(r.indices[d], ranges)
    return distance.const if distance.is_const else None


def _members(wanted: Sequence[Tensor], states: Sequence[Tensor], name: str) -> list[Stage]:
    """The stages that depend on a state, and those wanted, each after those whose same step it reads."""
    roots = {id(t.stage) for t in wanted}
    known = {id(t) for t in states}
    inside: dict[int, bool] = {}
    ordered: list[Stage] = []
    pending = [t.stage for t in reversed(wanted) if t.stage is not None]
    while pending:
        stage = pending[-1]
        below = [r.tensor.stage for r in stage.reads() if r.tensor.stage is not None]
        missing = [s for s in below if id(s) not in inside]
        if id(stage) not in inside and missing:
            pending += missing
            continue
        pending.pop()
        if id(stage) in inside:
            continue
        depends = any(id(r.tensor) in known for r in stage.reads()) or any(inside[id(s)] for s in below)
        inside[id(stage)] = depends or id(stage) in roots
        if inside[id(stage)]:
            ordered.append(stage)
    for stage in ordered:
        if stage.recurrence is not None or stage.scan_axis is not None or stage.extern is not None:
            raise WorkloadError(f"{name}: {stage.name} is sequential itself, or extern; it cannot be part of a step")
        if not stage.axes or stage.axes[0].extent != ordered[0].axes[0].extent:
            raise WorkloadError(f"{name}: the first axis of {stage.name} must be the steps, as in all of its stages")
    return ordered
