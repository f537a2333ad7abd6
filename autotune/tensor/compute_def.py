"""ComputeDef: a small DAG of stages, the mathematics of one kernel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.errors import WorkloadError
from autotune.tensor.expr import Expr, Read, rewrite, walk
from autotune.tensor.json import stage_from_json, stage_to_json, tensor_from_json, tensor_to_json
from autotune.tensor.stage import Stage, Tensor


@dataclass(frozen=True, slots=True)
class ComputeDef:
    """What is computed, nothing about how.

    Attributes:
        inputs: tensors that the kernel is given, in operand order.
        stages: in topological order; a scan stage may also read its own output, a stage of a recurrence that of any
            other (they are neighbours).
        outputs: names of the tensors that the kernel leaves, in operand order.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def build(inputs: Sequence[Tensor], outputs: Sequence[Tensor], names: Sequence[str] | None = None) -> ComputeDef:
        """Collect every stage that `outputs` need, give tensors unique names, and sort them.

        Args:
            inputs: placeholders, in operand order.
            outputs: computed tensors, in operand order, no two the same.
            names: what to call the outputs, instead of their own names.

        Raises:
            WorkloadError: when an output is an input, or a stage reads a placeholder missing from `inputs`.
        """
        return _Collector(inputs, outputs, names).ordered()

    def stage(self, name: str) -> Stage:
        """The stage that writes tensor `name`."""
        for stage in self.stages:
            if any(t.name == name for t in stage.outputs):
                return stage
        raise KeyError(name)

    def tensor(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, then every tensor that a stage writes."""
        return self.inputs + tuple(t for s in self.stages for t in s.outputs)

    @property
    def output_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.tensor(n) for n in self.outputs)

    def to_json(self) -> str:
        """Canonical text: equal definitions give equal bytes."""
        data = {
            "inputs": [tensor_to_json(t) for t in self.inputs],
            "stages": [stage_to_json(s) for s in self.stages],
            "outputs": list(self.outputs),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ComputeDef:
        data = json.loads(text)
        inputs = tuple(tensor_from_json(t) for t in data["inputs"])
        known = {t.name: t for t in inputs}
        stages = []
        for item in data["stages"]:
            mates = [x for x in data["stages"] if "recurrence" in x and x["recurrence"] == item.get("recurrence")]
            ahead = {x[0]: tensor_from_json(x) for mate in mates for x in mate["outputs"]}
            stage = stage_from_json(item, {**ahead, **known})
            known.update({t.name: t for t in stage.outputs})
            stages.append(stage)
        return ComputeDef(inputs, tuple(stages), tuple(data["outputs"]))

    @property
    def key(self) -> str:
        """16 hex digits that name this definition."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def __str__(self) -> str:
        lines = [f"{t.name}: {t.dtype}{list(t.shape)}" + (" constant" if t.constant else "") for t in self.inputs]
        for stage in self.stages:
            axes = ", ".join(f"{a.name}<{a.extent}" for a in stage.axes)
            values = ", ".join(map(str, stage.body))
            if stage.extern is not None:
                sources = ", ".join(e.tensor.name for e in stage.body if isinstance(e, Read))
                values = f"{stage.extern.name}({', '.join([sources, *(f'{k}={v}' for k, v in stage.extern.attrs)])})"
            if stage.reducer is not None:
                over = ", ".join(f"{a.name}<{a.extent}" for a in stage.reduce_axes)
                values = f"{stage.reducer.name}[{over}] {values}"
            if stage.recurrence is not None:
                values += f"  in turns along {stage.scan_axis} of {stage.recurrence}"
            lines.append(f"{', '.join(t.name for t in stage.outputs)}[{axes}] = {values}")
        return "\n".join(lines)


class _Collector:
    """Depth-first, without recursion over stages: chains may be long."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], names: Sequence[str] | None) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.taken: set[str] = set()
        self.stages: list[Stage] = []
        self.done: set[int] = set()
        self.wanted = {} if names is None else {_identity(t): n for t, n in zip(self.outputs, names, strict=True)}
        for t in self.inputs:
            if t.stage is not None:
                raise WorkloadError(f"{t.name} is computed, it cannot be an input")
            if t.name in self.taken:
                raise WorkloadError(f"two inputs are named {t.name}")
            self.taken.add(t.name)
        for t in self.outputs:
            if t.stage is None:
                raise WorkloadError(f"output {t.name} is an input; copy it with compute()")
        if len({_identity(t) for t in self.outputs}) < len(self.outputs):
            raise WorkloadError("the same tensor is an output twice; copy it with compute()")
        for name in self.wanted.values():
            if name in self.taken:
                raise WorkloadError(f"output and input, or two outputs, are named {name}")
            self.taken.add(name)

    def ordered(self) -> ComputeDef:
        pending = list(reversed(self.outputs))
        names: dict[tuple[int, str], str] = {}
        while pending:
            tensor = pending[-1]
            stage = tensor.stage
            assert stage is not None  # only computed tensors are ever pending
            if id(stage) in self.done:
                pending.pop()
                continue
            group = stage.members or [stage]
            missing = [t for s in group for t in self._producers(s, group) if id(t.stage) not in self.done]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            self._emit(group, names)
        return ComputeDef(self.inputs, tuple(self.stages), tuple(names[_identity(t)] for t in self.outputs))

    def _producers(self, stage: Stage, group: Sequence[Stage]) -> list[Tensor]:
        carried = {t.name for s in group if s.scan_axis is not None for t in s.outputs}
        found = []
        for body in stage.body:
            for e in walk(body):
                if not isinstance(e, Read):
                    continue
                if e.tensor.stage is not None:
                    found.append(e.tensor)
                elif e.tensor not in self.inputs and e.tensor.name not in carried:
                    raise WorkloadError(f"{stage.name} reads {e.tensor.name}, which is neither computed nor an input")
        return found

    def _emit(self, group: Sequence[Stage], names: dict[tuple[int, str], str]) -> None:
        """Add a stage, or all of a recurrence, under names that are still free."""
        carried = {}
        outputs: list[tuple[Tensor, ...]] = []
        for stage in group:
            own = []
            for t in stage.outputs:
                name, n = self.wanted.get((id(stage), t.name), t.name), 1
                while name in self.taken and (id(stage), t.name) not in self.wanted:
                    n += 1
                    name = f"{t.name}_{n}"
                self.taken.add(name)
                own.append(Tensor(name, t.shape, t.dtype))
                names[(id(stage), t.name)] = name
                if stage.scan_axis is not None:
                    carried[t.name] = own[-1]
                    if t in self.inputs:
                        raise WorkloadError(f"{t.name} reads itself and has the name of an input; rename one of them")
            outputs.append(tuple(own))

        def rename(e: Expr) -> Expr | None:
            if not isinstance(e, Read):
                return None
            new: Tensor | None = None
            if e.tensor.stage is not None:
                new = Tensor(names[(id(e.tensor.stage), e.tensor.name)], e.tensor.shape, e.tensor.dtype)
            elif e.tensor not in self.inputs:
                new = carried.get(e.tensor.name)
            return None if new is None else replace(e, tensor=new)

        turns = None if group[0].recurrence is None else outputs[0][0].name
        for stage, mine in zip(group, outputs, strict=True):
            body = tuple(rewrite(b, rename) for b in stage.body)
            self.stages.append(replace(stage, outputs=mine, body=body, recurrence=turns))
            self.done.add(id(stage))


def _identity(t: Tensor) -> tuple[int, str]:
    return id(t.stage), t.name
