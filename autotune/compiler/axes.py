"""What may be done with each open dimension of a model: padded, cut, or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.buckets import CannotPad, Padding, kept_apart, padded_model, padding_of, valid_name
from autotune.runtime.open_axes import OpenAxes, OpenAxis


@dataclass(frozen=True)
class Axes:
    """
    Attributes:
        open: how runs go along dimensions that need not be exact.
        exact: the other open dimensions, and why.
        masked: the model with masks in it, and an input for each dimension that has an end.
    """

    open: OpenAxes
    exact: Mapping[str, str]
    masked: OnnxModel

    @classmethod
    def of(cls, model: OnnxModel) -> Axes:
        """What the model as it is allows, or, where that is more, with dimensions kept apart that it joins."""
        found = cls._of(model)
        apart = kept_apart(model, *found.exact) if found.exact else model
        other = found if apart is model else cls._of(apart)
        return other if len(other.exact) < len(found.exact) else found

    @classmethod
    def _of(cls, model: OnnxModel) -> Axes:
        """Each dimension is looked at in the model that the ones before it made. Where one has an end that the program
        is told, those that are cut have one, too: a piece then fits a larger program."""
        inputs = model.inputs
        padded: list[Padding] = []
        cut: list[Padding] = []
        exact: dict[str, str] = {}
        for symbol in OpenAxes(inputs, ()).symbols:
            try:
                found = padding_of(model, symbol)
            except CannotPad as error:
                exact[symbol] = str(error)
                continue
            model = padded_model(model, found)
            (padded if found.mixes else cut).append(found)
        if any(found.ends for found in padded):
            for n, found in enumerate(cut):
                if not found.ends:
                    cut[n] = replace(found, ends=True)
                    model = padded_model(model, cut[n])
        return cls(OpenAxes(inputs, tuple(map(_axis, (*padded, *cut)))), exact, model)


def _axis(found: Padding) -> OpenAxis:
    end = valid_name(found.symbol) if found.ends else ""
    return OpenAxis(found.symbol, tuple(found.outputs.values()), not found.mixes, end)
