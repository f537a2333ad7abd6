"""Rooms: the parts of a model, and what is known of what comes to them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Union

from autotune.compiler.open_form import Form, OpenForm
from autotune.compiler.value_forms import digest, form_of
from autotune.graph.frontend import Part
from autotune.graph.host import HostValue

if TYPE_CHECKING:
    from autotune.compiler.bucketed import BucketedModel

MOST_FORMS = 64
"""Of runs of a part from which is learned what is open."""


class Served(NamedTuple):
    """What serves the values of a run.

    Attributes:
        by: an open form, which they fit; inputs on which nothing depends; None for just such values.
        free: names of the inputs whose forms do not matter to it. `told`: of those whose values do not.
    """

    by: Union[OpenForm, frozenset[str], None]
    free: Collection[str] = ()
    told: Collection[str] = ()


EXACTLY = Served(None)


@dataclass(eq=False)
class Room:
    """A part of the model, and what its specialisations depend on.

    Attributes:
        number: tells it from all others of the model.
        part: the nodes.
        is_whole: it is the whole model.
        decisive: inputs for whose values it is made, not only for their types; they are found out as runs come.
        typed: it needs the types of all inputs, also of those that grow; found out as well.
        open: which extents of its inputs data decides, once two runs have shown it.
        eager: inputs on whose shapes and values nothing depends: where nothing can be proved of the open ones, what
            is computed from them runs on the host if that takes little time.
        usual: forms of such inputs that have come again and again, and have a program of their own.
        beginning: of what is open, only what can be padded is computed at once; the rest waits for that.
        forms: of the first run that had a program, and of those that showed this; None where there must be one for
            each.
        before: the seconds that it took to make the first program, and the bytes of the memory of its runs.
        kept: models with open dimensions, by what they compute.
    """

    number: int
    part: Part
    is_whole: bool
    decisive: tuple[str, ...]
    typed: bool = False
    open: OpenForm | None = None
    eager: frozenset[str] = frozenset()
    usual: set[Hashable] = field(default_factory=set)
    beginning: bool = False
    forms: Sequence[Form] | None = ()
    before: tuple[float, int] = (0.0, 0)
    kept: dict[Hashable, BucketedModel] = field(default_factory=dict)

    def learn(self, form: Form) -> bool:
        """Take the form of a run for which there is nothing yet; whether it may be served together with others now."""
        if not self.forms or form in self.forms:
            return False
        if self.eager:
            more = form.unlike(self.forms[0]) - self.eager
            self.eager |= more
            return bool(more)
        if self.beginning and self.open is None:
            return False
        self.forms = [*self.forms, form]
        self.open = OpenForm.of(self.forms) if len(self.forms) <= MOST_FORMS else None
        if self.open is None:
            self.do_less()
        return True

    def do_less(self) -> None:
        """What it was is not possible: what is open is padded, runs at once, is padded as far as that is possible, or
        has a specialisation for each run."""
        if self.beginning or not self.forms:
            self.open, self.forms = None, None
        elif self.eager:
            self.eager, self.beginning = frozenset(), True
            self.open = OpenForm.of(self.forms)
            self.forms = self.forms if self.open is not None else None
        else:
            self.open = None
            self.eager = frozenset().union(*(form.unlike(self.forms[0]) for form in self.forms[1:]))

    def form(self, values: Mapping[str, HostValue]) -> Hashable:
        """Of the inputs on which nothing depends."""
        known = [form_of(values[name]) for name in self.eager]
        return tuple(known), tuple(digest(values[name]) for name in self.decisive if name in self.eager)

    def served(self, values: Mapping[str, HostValue]) -> Served:
        """What serves such values now; whoever asks twice may hear of something else."""
        eager = self.eager
        if eager:
            return EXACTLY if self.usual and self.form(values) in self.usual else Served(eager, eager, eager)
        form = self.open
        if form is None or form.extents(values) is None:
            return EXACTLY
        return Served(form, form.dims.keys(), form.elements.keys())

    def key(
        self,
        values: Mapping[str, HostValue],
        decisive: tuple[str, ...],
        growing: frozenset[str] = frozenset(),
        served: Served = EXACTLY,
    ) -> tuple[object, ...]:
        """What two runs have in common that use the same specialisation."""
        free = served.free
        types = [form_of(values[n]) if n not in growing and n not in free else ... for n in self.part.inputs]
        told = (digest(values[name]) for name in decisive if name not in served.told)
        return (self.number, decisive, served.by, *types, *told)
