"""What runs on the host at a stop, one call after the other: what each of them needs is looked up in the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.compiler.bound_host import Found
from autotune.compiler.specialisation import Bound, Call, HostCall
from autotune.graph.host.eager_steps import LEFT, Operand, Step, step_of
from autotune.runtime.executor import Array
from autotune.runtime.nonzero import NonzeroOfEach

Values = dict[str, Any]


class HostSteps:
    """The calls of a stop; one run at a time.

    Args:
        calls: as the specialisation has them. `bound`: the same on the way.
        constants: values that are the same in every run.

    Attributes:
        fresh: names of the results that nobody else has.
    """

    def __init__(self, calls: Sequence[Call], bound: Sequence[Bound], constants: Mapping[str, Array]) -> None:
        self._calls, self._bound, self._constants = calls, bound, constants
        self._steps: list[tuple[Step, Step | None]] | None = None
        self._given: dict[str, Array] = {}  # initializers that steps read
        self._types: list[tuple[str, np.dtype[np.generic]]] = []  # of what steps read and others have written
        self.fresh = frozenset(name for call, own in zip(calls, bound) if own.fresh for name in call.writes)

    def run(self, values: Values) -> None:
        """Add the results to the values of a run.

        Raises:
            InputError, ModelError: the values are impossible.
        """
        if self._steps is None:
            self._learn(values)
            return
        for name, dtype in self._types:
            value = values[name]
            if type(value) is not np.ndarray or value.dtype is not dtype:
                for call, bound in zip(self._calls, self._bound):
                    _as_elsewhere(call, bound)(values)
                return
        values.update(self._given)
        with np.errstate(all="ignore"):
            for step, otherwise in self._steps:
                try:
                    step(values)
                except LEFT:
                    if otherwise is None:
                        raise
                    otherwise(values)

    def _learn(self, values: Values) -> None:
        """Run what comes first, and see what the steps may rest on."""
        steps: list[tuple[Step, Step | None]] = []
        made: set[str] = set()
        types: dict[str, np.dtype[np.generic]] = {}
        finds: list[tuple[Found, str]] = []  # one after the other
        for call, bound in zip(self._calls, self._bound):
            otherwise = _as_elsewhere(call, bound)
            otherwise(values)
            made.update(call.writes)
            if isinstance(bound.results, Found):
                finds.append((bound.results, call.writes[0]))
                if len(finds) > 1:
                    steps.pop()
                steps.append((_finding(finds), None))
                continue
            finds = []
            operands = self._operands(call, values) if isinstance(call, HostCall) else None
            found = step_of(call.node, operands) if isinstance(call, HostCall) and operands is not None else None
            if found is None or operands is None:
                steps.append((otherwise, None))
                continue
            steps.append((found, otherwise))
            for one in operands:
                if one.constant:
                    self._given[one.name] = one.array
                elif one.name not in made:
                    types[one.name] = one.array.dtype
        self._types, self._steps = list(types.items()), steps

    def _operands(self, call: HostCall, values: Values) -> list[Operand] | None:
        """The inputs of a node; None where one is left out, or no tensor."""
        found: list[Operand] = []
        for name in call.reads:
            constant = name is not None and (name not in values or name in self._constants)
            value = None if name is None else values[name] if name in values else call.constants[name]
            if name is None or not isinstance(value, np.ndarray):
                return None
            found.append(Operand(name, value, constant))
        return found


def _finding(finds: Sequence[tuple[Found, str]]) -> Step:
    """NonZero of what lies at the same places in every run."""
    each, names = NonzeroOfEach([(found.of, found.place) for found, _ in finds]), [name for _, name in finds]

    def step(values: Values) -> None:
        values.update(zip(names, each.run()))

    return step


def _as_elsewhere(call: Call, bound: Bound) -> Step:
    names, results = call.writes, bound.results
    if len(names) == 1:
        (only,) = names

        def alone(values: Values) -> None:
            values[only] = results(values)[0]

        return alone

    def step(values: Values) -> None:
        for name, found in zip(names, results(values)):
            values[name] = found

    return step
