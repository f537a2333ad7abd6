"""Forms that come again and again to a part that runs at once, without a program: such a form gets one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from autotune.compiler.background import Background
from autotune.compiler.room import Room
from autotune.graph.host import HostValue

OFTEN = 16
"""Runs of one form, after which it is worth a program: of a part, one after the other."""


class Again:
    """Looks at the values of each run of a part; may be told of several at a time.

    Args:
        make: a program for just this form; whether that was possible.
    """

    def __init__(self, room: Room, background: Background, make: Callable[[Mapping[str, HostValue]], bool]) -> None:
        self._room, self._background, self._make = room, background, make
        self._last: Hashable = None
        self._times = 0

    def __call__(self, values: Mapping[str, HostValue]) -> None:
        form = self._room.form(values)
        if form != self._last:
            self._last, self._times = form, 0
        self._times += 1
        if self._times >= OFTEN:
            given = {name: values[name] for name in self._room.part.inputs}
            for name in self._room.decisive:  # of others, the form is all that counts
                value = given[name]
                given[name] = value if value is None or isinstance(value, list) else value.copy()

            def work() -> None:
                if self._make(given):
                    self._room.usual.add(form)

            if self._background.offer(work):
                self._times = -(2**62)  # once, whatever comes of it, until another form has come
