"""What becomes of a part that runs on as many elements as data decides (docs/adr/0035)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from autotune.compiler.again import Again
from autotune.compiler.open_form import Form, OpenForm
from autotune.compiler.room import Room, Served
from autotune.compiler.specialisation import Specialisation
from autotune.graph.frontend import Stage
from autotune.graph.frontend.beginning import NoModel
from autotune.graph.host import HostValue, host_function, is_eager

if TYPE_CHECKING:
    from autotune.compiler.stages import Stages

_log = logging.getLogger(__name__)

FINDS = frozenset(("Compress", "MaskedSelect", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators that give as much as they find."""

FEW_ELEMENTS = 2**22
"""Of all values of a part together, which NumPy computes in some milliseconds."""


class OpenError(Exception):
    """Which extents of a part are open, or what is done with them, has changed: look again."""


class MoreValuesError(Exception):
    """A stage depends on values that its key does not hold."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names


class Decided:
    """Makes specialisations of parts, for all extents that data decides where that is possible.

    Args:
        stages: that run the parts.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._by_eager: set[str] = set()  # names of what eager operators write: nobody knows how much of it

    def specialised(
        self, room: Room, served: Served, stage: Stage, given: Mapping[str, HostValue], decisive: tuple[str, ...]
    ) -> Specialisation:
        """A stage with its program, or with what runs it for all extents that data decides: at once where all of it
        takes little time, else once they have differed.

        Raises:
            OpenError: the room is another now.
        """
        stages, by = self._stages, served.by
        if isinstance(by, OpenForm):
            return self._opened(room, stage, given, decisive, by)
        own = Form.of(given, decisive)
        if by is None and room.forms == () and (names := self._quick(room, stage, given)):
            room.eager, room.forms = names, (own,)
            raise OpenError
        usual = by is None and bool(room.eager)  # a form of what runs at once that has come often enough
        with stages.lock:
            if not usual and room.learn(own):
                raise OpenError
        special = stages.built(stage)
        if by is not None:
            self._by_eager.update(name for index in stage.hosts for name in stages.model.nodes[index].writes)
            return replace(special, look=Again(room, stages.workshop.background, partial(self._make_exact, room)))
        if room.forms == () and special.program is not None:
            room.before, room.forms = (special.life.seconds, special.takes), (own,)
        return special

    def _quick(self, room: Room, stage: Stage, given: Mapping[str, HostValue]) -> frozenset[str]:
        """The inputs whose extents data decides, where all that follows from them takes little time: a program for just
        these extents would be made for this run alone."""
        stages, graph = self._stages, stage.graph
        entries = (entry for entry in stages.model.nodes if entry.proto.op_type in FINDS)
        names = self._by_eager.union(*(entry.writes for entry in entries)).intersection(given)
        if not names or graph is None or sum(math.prod(node.output.shape) for node in graph.nodes) > FEW_ELEMENTS:
            return frozenset()
        bare = stages.converted(room.part, stages.types(given, names), given, True, names, True)
        waiting = [stages.model.nodes[index].proto for index in (() if bare.rest is None else bare.rest.nodes)]
        quick = all(is_eager(n) or host_function(n) is not None or n.op_type in ("Constant", "If") for n in waiting)
        return frozenset(names) if quick and bare.gets_on(room.part) else frozenset()

    def _make_exact(self, room: Room, values: Mapping[str, HostValue]) -> bool:
        """Make a program for one form of a part that runs at once; not where it asks for values that nobody kept."""
        stages, decisive = self._stages, room.decisive

        def make() -> Specialisation:
            stage = stages.converted(room.part, stages.types(values), values, True)
            if not set(stage.observed) <= set(decisive):
                raise MoreValuesError(stage.observed)
            return stages.built(stage)

        try:
            stages.workshop.cache.get(room.key(values, decisive), make)
        except MoreValuesError:
            return False
        return True

    def _opened(
        self, room: Room, stage: Stage, given: Mapping[str, HostValue], decisive: tuple[str, ...], form: OpenForm
    ) -> Specialisation:
        """A stage with what runs it for all extents that fit a form; of a beginning, without what cannot be padded.

        Raises:
            OpenError: that is not possible.
        """
        from autotune.compiler.open_part import Opening  # which runs models

        stages, start, barred = self._stages, time.perf_counter(), set[int]()
        making = stages.workshop.making
        forms = room.forms
        if making.target is None or not forms:  # another run has found out that it cannot be
            raise OpenError
        others = form.extents_of(forms[0])
        opening = Opening(stages.model, room.part, given, decisive, form, *room.before, others, room.kept)
        while True:
            try:
                opened = opening.calls(stage, making, making.target)
                break
            except NoModel as error:
                _log.info("%s may have any extent: %s", ", ".join(sorted(form.dims)), error)
                if not room.beginning or error.nodes <= barred:
                    with stages.lock:
                        room.do_less()
                    raise OpenError from error
                barred |= error.nodes
                stage = stages.converted(room.part, stages.types(given), given, True, barred=barred)
        names = {name for call in opened for name in call.writes}
        bare = replace(stage, graph=None, constants={n: a for n, a in stage.constants.items() if n not in names})
        return Specialisation.of(bare, None, stages.call, stages.room, time.perf_counter() - start, opened)
