"""What runs on the host at a stop, one call after the other: what each of them needs is looked up in the first run."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from autotune.compiler.bound_host import Found
from autotune.compiler.native_calls import NativeCall, NativeCalls, Threads, is_native, is_worth
from autotune.compiler.native_rows import RowMemory, Take
from autotune.compiler.specialisation import Bound, Call, HostCall
from autotune.graph.host.eager_steps import LEFT, Operand, Step, computes, step_of
from autotune.runtime.executor import Array, Executor
from autotune.runtime.nonzero import NonzeroOfEach

Values = dict[str, Any]


class _Taken(NamedTuple):
    """How a run takes a call, how if that raises one of `LEFT`, and how native code may."""

    step: Step
    otherwise: Step | None
    native: NativeCall | None


class HostSteps:
    """The calls of a stop; one run at a time.

    Args:
        calls: as the specialisation has them. `bound`: the same on the way.
        constants: values that are the same in every run.
        wanted: names of what somebody else reads; None where nobody knows, so that all of it is.
        threads: for programs that native code runs. `take`: told of the memory that this takes.

    Attributes:
        fresh: names of the results that nobody else has.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        bound: Sequence[Bound],
        constants: Mapping[str, Array],
        wanted: frozenset[str] | None = None,
        threads: Threads = Executor.pool,
        take: Take | None = None,
    ) -> None:
        self._calls, self._bound, self._constants = calls, bound, constants
        self._wanted, self._threads, self._memory = wanted, threads, take or RowMemory().take
        self._steps: list[tuple[Step, Step | None]] | None = None
        self._given: dict[str, Array] = {}  # initializers that steps read
        self._types: list[tuple[str, np.dtype[np.generic]]] = []  # of what steps read and others have written
        self._computes = False  # so that NumPy may have something to warn of
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
        if not self._computes:
            _take(self._steps, values)
            return
        with np.errstate(all="ignore"):
            _take(self._steps, values)

    def _learn(self, values: Values) -> None:
        """Run what comes first, and see what the steps may rest on."""
        steps: list[_Taken] = []
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
                steps.append(_Taken(_finding(finds), None, None))
                continue
            finds = []
            operands = self._operands(call, values) if isinstance(call, HostCall) else None
            found = step_of(call.node, operands) if isinstance(call, HostCall) and operands is not None else None
            if found is None or operands is None or not isinstance(call, HostCall):
                native = None if bound.open is None else NativeCall(None, (), bound.open, call.writes)
                steps.append(_Taken(otherwise, None, native))
                continue
            native = NativeCall(call.node, operands, None, call.writes) if is_native(call.node) else None
            steps.append(_Taken(found, otherwise, native))
            self._computes |= computes(call.node)
            for one in operands:
                if one.constant:
                    self._given[one.name] = one.array
                elif one.name not in made:
                    types[one.name] = one.array.dtype
        self._types, self._steps = list(types.items()), self._together(steps)

    def _together(self, steps: Sequence[_Taken]) -> list[tuple[Step, Step | None]]:
        """The steps; those that native code may take, several one behind the other, as one."""
        known = all(isinstance(call, HostCall) or bound.open for call, bound in zip(self._calls, self._bound))
        if self._wanted is None or not known:
            return [(one.step, one.otherwise) for one in steps]
        found: list[tuple[Step, Step | None]] = []
        reads = Counter(name for call in self._calls if isinstance(call, HostCall) for name in call.reads if name)
        reads.update(name for bound in self._bound if bound.open for name in bound.open.reads)
        for native, group in itertools.groupby(steps, lambda one: one.native is not None):
            several = list(group)
            alone = [(one.step, one.otherwise) for one in several]
            calls = [one.native for one in several if one.native is not None]
            if not native or not is_worth(calls):
                found += alone
                continue
            inside = Counter(name for call in calls for name in call.reads)
            wanted = self._wanted.union(reads - inside)
            found.append((NativeCalls(calls, partial(_take, alone), wanted, self._threads, self._memory), None))
            self.fresh -= {name for call in calls for name in call.writes}  # others have what lies in memory of ours
        return found

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


def _take(steps: Sequence[tuple[Step, Step | None]], values: Values) -> None:
    """One after the other."""
    for step, otherwise in steps:
        try:
            step(values)
        except LEFT:
            if otherwise is None:
                raise
            otherwise(values)


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
