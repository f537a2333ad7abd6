"""Merge stages that compute the same, so that what several results have in common is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.tensor.expr import Const, Expr, Read, Var, rewrite
from autotune.tensor.stage import Axis, Stage, Tensor


def merge_equal_stages(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, of stages among which no two are equal up to the names of tensors and axes.

    Of equal stages the first one stays, names included; what nothing equal comes before is left as it is.
    """
    merger = _Merger()
    for group in _in_order(outputs):
        merger.add(group)
    return [merger.merged(t) for t in outputs]


class _Merger:
    def __init__(self) -> None:
        self.kept: dict[int, Stage] = {}  # by the id of a stage the one in its place
        self.number: dict[int, int] = {}  # by the id of a stage that stays
        self.known: dict[object, Sequence[Stage]] = {}

    def add(self, group: Sequence[Stage]) -> None:
        """Decide on a stage, or all stages of a recurrence, whose producers are decided."""
        own = {t.name: f"own{n}.{m}" for n, stage in enumerate(group) for m, t in enumerate(stage.outputs)}
        key = tuple(self._key(stage, own) for stage in group)
        if key not in self.known:
            moved = any(self.merged(r.tensor) is not r.tensor for stage in group for r in stage.reads())
            kept = group if not moved else [self._redirected(stage) for stage in group]
            for stage in kept:
                self.number[id(stage)] = len(self.number)
                if moved and len(kept) > 1:
                    stage.members.extend(kept)
            self.known[key] = kept
        for stage, same in zip(group, self.known[key], strict=True):
            self.kept[id(stage)] = same

    def merged(self, t: Tensor) -> Tensor:
        """The tensor in the place of `t`."""
        if t.stage is None:
            return t
        kept = self.kept[id(t.stage)]
        position = [o.name for o in t.stage.outputs].index(t.name)
        return t if kept is t.stage else replace(kept.outputs[position], stage=kept)

    def _redirected(self, stage: Stage) -> Stage:
        return replace(stage, body=tuple(rewrite(b, self._redirect) for b in stage.body))

    def _redirect(self, e: Expr) -> Expr | None:
        return replace(e, tensor=self.merged(e.tensor)) if isinstance(e, Read) else None

    def _key(self, stage: Stage, own: dict[str, str]) -> object:
        """What a stage computes: tensors by the number of their stage, axes by position, constants to the bit."""
        axes = {a.name: f"a{n}" for n, a in enumerate(stage.all_axes)}

        def anonymous(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                return Var(axes.get(e.name, e.name), e.dtype)
            if isinstance(e, Const):
                return Var(repr(e.value), e.dtype)  # 0.0 and -0.0 are equal, NaN is not equal to itself
            if isinstance(e, Read):
                otherwise = None if e.otherwise is None else anonymous(e.otherwise)
                return replace(e, tensor=self._name(e.tensor, stage, own), otherwise=otherwise)
            return None

        return (
            tuple((t.shape, t.dtype) for t in stage.outputs),
            tuple(Axis(axes[a.name], a.extent) for a in stage.axes),
            tuple(Axis(axes[a.name], a.extent) for a in stage.reduce_axes),
            tuple(rewrite(b, anonymous) for b in stage.body),
            repr(stage.reducer),
            None if stage.scan_axis is None else axes[stage.scan_axis],
            stage.extern,
            stage.recurrence is None,
        )

    def _name(self, t: Tensor, reader: Stage, own: dict[str, str]) -> Tensor:
        if t.stage is not None:
            kept = self.merged(t)
            return replace(t, name=f"{self.number[id(kept.stage)]}.{kept.name}", stage=None)
        return replace(t, name=own[t.name]) if reader.scan_axis is not None and t.name in own else t


def _in_order(outputs: Sequence[Tensor]) -> list[Sequence[Stage]]:
    """Every stage that the tensors need, producers first, recurrences whole; no recursion, since chains may be long."""
    done: set[int] = set()
    ordered: list[Sequence[Stage]] = []
    pending = [t.stage for t in reversed(outputs) if t.stage is not None]
    while pending:
        stage = pending[-1]
        group = stage.members or [stage]
        reads = [r for member in group for r in member.reads()]
        missing = [s for r in reads if (s := r.tensor.stage) is not None and id(s) not in done]
        if id(stage) in done or not missing:
            pending.pop()
            if id(stage) not in done:
                done.update(map(id, group))
                ordered.append(group)
        else:
            pending += missing[::-1]
    return ordered
