"""The body of a loop that reads all of what it appends to, or slices of any length: padded, so that one program serves
many lengths."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from autotune.compiler.stages import Stages, Workshop
from autotune.compiler.value_forms import digest, form_of, is_tensor
from autotune.errors import AutotuneError
from autotune.graph import one_line
from autotune.graph.frontend import OnnxModel, Part
from autotune.graph.frontend.buckets import CannotPad, padded_model, that_pads, valid_name
from autotune.graph.frontend.cuts import Cut, cuts_of, windowed
from autotune.graph.frontend.part import needed, whole
from autotune.graph.host import HostValue
from autotune.runtime.executor import dtype_name
from autotune.tensor.declared import ModelInput

_log = logging.getLogger(__name__)

SYMBOL = "steps"
VALID = valid_name(SYMBOL)
"""The input that is told how long what grows is in a step."""


@dataclass(eq=False, slots=True)
class PaddedBody:
    """What runs a body with room behind what it appends to (docs/adr/0033-loops.md).

    Attributes:
        model: the body, whose results are what is appended in place of the whole.
        part: all of it.
        results: names of what it gives.
        cuts: slices for which there is a window, in place of what grows.
    """

    model: OnnxModel
    part: Part
    results: tuple[str, ...]
    workshop: Workshop
    cuts: tuple[Cut, ...] = ()
    _made: dict[Hashable, Stages | None] = field(default_factory=dict)

    def stages(self, values: Mapping[str, HostValue], grown: Mapping[str, int]) -> Stages | None:
        """What runs it on such values; None where padding may change what it gives.

        Args:
            values: of its inputs, None for those that it does not read.
            grown: names of those that grow, and the axes along which they do.
        """
        key = self._key(values, grown)
        if key not in self._made:
            try:
                with one_line():
                    self._made[key] = self._padded(values, grown)
            except (AutotuneError, CannotPad) as error:
                _log.info("%s is compiled for each length: %s", self.model.name, error)
                self._made[key] = None
        return self._made[key]

    def give_up(self, values: Mapping[str, HostValue], grown: Mapping[str, int]) -> None:
        """What the padding looks up is not there, say: from now on such values run as they are."""
        self._made[self._key(values, grown)] = None

    def _key(self, values: Mapping[str, HostValue], grown: Mapping[str, int]) -> Hashable:
        forms = [_open(form_of(values[name]), grown.get(name)) for name in self.part.inputs]
        return (*forms, *(digest(values[name]) for name in sorted(self.part.fixed)))

    def _padded(self, values: Mapping[str, HostValue], grown: Mapping[str, int]) -> Stages:
        source = _declared(self.model, self.part, values, grown)
        if self.cuts:
            padded = windowed(source, cuts_of(source))
        else:
            source, padding = that_pads(source, SYMBOL)
            longer = [name for name, axes in padding.outputs.items() if axes]
            if longer:
                raise CannotPad(f"'{longer[0]}' is as long as what the loop appends to")
            padded = padded_model(source, padding)
        return Stages(padded, whole(padded), self.results, self.workshop)


def _declared(model: OnnxModel, part: Part, values: Mapping[str, HostValue], grown: Mapping[str, int]) -> OnnxModel:
    """The body for values of such types, open where they grow. Raises CannotPad where one is no tensor."""
    inputs, known = [], {}
    for name in part.inputs:
        value = values[name]
        if value is None:
            continue
        if not is_tensor(value):
            raise CannotPad(f"'{name}' is no tensor of numbers")
        if name in part.fixed:
            known[name] = value
            continue
        axis = grown.get(name)
        dims = tuple(SYMBOL if n == axis else extent for n, extent in enumerate(value.shape))
        inputs.append(ModelInput(name, dtype_name(value), dims))
    nodes = [model.nodes[index] for index in needed(model, range(len(model.nodes)))]
    constants = {**model.initializers, **known}
    return replace(model, inputs=tuple(inputs), initializers=constants, nodes=nodes, _expanded={})


def _open(form: object, axis: int | None) -> object:
    """The form of a value along whose axis its extent does not matter."""
    if axis is None or not isinstance(form, tuple):
        return form
    dtype, shape = form
    return dtype, shape[:axis], shape[axis + 1 :]
