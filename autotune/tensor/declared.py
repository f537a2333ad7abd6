"""What a model declares of its inputs and outputs: dtypes, and dimensions of which some are open until a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

from autotune.errors import InputError, ModelError, WorkloadError
from autotune.tensor.extents import check_shape

STRING = "string"
"""The dtype of tensors of strings, which is no `DType`."""

Dim = Union[int, str, None]  # static extent, symbol, or unknown


@dataclass(frozen=True, slots=True)
class ModelInput:
    """A run-time input: its dtype and its dimensions, some of which may be open; None if even the rank is.

    Attributes:
        dtype: a `DType` string, or STRING.
        wraps: what it is of such tensors, outermost first: "seq", "optional", "map"; nothing for a tensor.
        keys: the dtype of the keys of a map, "i64" or STRING; `dtype` is that of its values.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None
    wraps: tuple[str, ...] = ()
    keys: str = ""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor of numbers: what programs take."""
        return not self.wraps and self.dtype != STRING

    @property
    def form(self) -> str:
        """Its type as messages write it."""
        if self.keys:
            return f"map({self.keys}, {self.dtype})"
        text = f"{self.dtype}[{listed(self.dims)}]"
        for wrap in reversed(self.wraps):
            text = f"{wrap}({text})"
        return text

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its dimensions when all of them are known."""
        dims = self.dims or ()
        known = tuple(dim for dim in dims if isinstance(dim, int))
        return known if self.dims is not None and len(known) == len(dims) else None


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What the model declares of an output; it need not declare anything, and what is computed decides."""

    name: str
    dtype: str | None
    dims: tuple[Dim, ...] | None
    wraps: tuple[str, ...] = ()


def bind_shapes(inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]]) -> tuple[ModelInput, ...]:
    """The inputs with the dimensions that the user gives; a symbol (`N`) bound by one is bound for all.

    Args:
        shapes: dimensions by name of an input, or one extent by name of a symbol.

    Raises:
        ModelError: unknown names in `shapes`, contradictions, impossible dimensions.
    """
    check_given(shapes)
    names = [declared.name for declared in inputs]
    open_dims = list(dict.fromkeys(dim for declared in inputs for dim in declared.dims or () if isinstance(dim, str)))
    symbols: dict[str, int] = {}
    for name, extents in shapes.items():
        if name in names:
            continue
        if name not in open_dims:
            known = f"inputs: {', '.join(names) or 'none'}" + (f"; open: {', '.join(open_dims)}" if open_dims else "")
            raise ModelError(f"there is no input '{name}'; {known}")
        if len(extents) != 1:
            raise ModelError(f"'{name}' is one dimension, and {len(extents)} are given")
        symbols[name] = int(extents[0])
    for declared in inputs:
        if declared.name in shapes:
            _bind(declared, tuple(int(extent) for extent in shapes[declared.name]), symbols)
    bound = []
    for declared in inputs:
        dims: tuple[Dim, ...] | None = tuple(shapes[declared.name]) if declared.name in shapes else declared.dims
        if dims is not None:
            dims = tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
        check_possible(declared.name, dims)
        bound.append(replace(declared, dims=dims))
    return tuple(bound)


def check_given(shapes: object, others: tuple[type, ...] = ()) -> None:
    """Raises InputError for what is no mapping of names to whole numbers, or to extents of other types."""
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes are a mapping of names to dimensions, not {shapes!r}")
    for name, extents in shapes.items():
        if not isinstance(extents, Sequence) or not all(
            hasattr(extent, "__index__") or isinstance(extent, others) for extent in extents
        ):
            raise InputError(f"the dimensions of {name!r} are a list of whole numbers, not {extents!r}")


def rename_symbols(inputs: tuple[ModelInput, ...], names: Mapping[str, str]) -> tuple[ModelInput, ...]:
    """Inputs with some open dimensions under other names."""
    return tuple(
        replace(i, dims=i.dims and tuple(names.get(d, d) if isinstance(d, str) else d for d in i.dims)) for i in inputs
    )


def bind_symbols(inputs: Sequence[ModelInput], extents: Mapping[str, int]) -> tuple[ModelInput, ...]:
    """The inputs with open dimensions bound by the names of their symbols; names that no input has are passed over.

    Raises:
        ModelError: impossible dimensions.
    """
    known = {dim for declared in inputs for dim in declared.dims or ()}
    return bind_shapes(inputs, {name: (extent,) for name, extent in extents.items() if name in known})


def check_feeds(
    inputs: Sequence[ModelInput], given: Mapping[str, tuple[str, tuple[int, ...]]], others: Sequence[str] = ()
) -> None:
    """Whether (dtype, shape) of every feed is what the model declares, equal symbols being equal extents.

    Args:
        others: names of feeds that are no tensors of numbers, and fit.

    Raises:
        InputError: a feed is missing, unknown, or of another dtype or shape.
    """
    names = dict.fromkeys((*given, *others))
    if names.keys() != {declared.name for declared in inputs}:
        wanted = ", ".join(f"{declared.name}: {declared.form}" for declared in inputs)
        raise InputError(f"the model takes {wanted or 'no inputs'}; got {', '.join(map(str, names)) or 'nothing'}")
    symbols: dict[str, int] = {}
    for declared in inputs:
        if not declared.is_tensor:
            continue
        dtype, shape = given[declared.name]
        dims = declared.dims if declared.dims is not None else shape
        extents = [symbols.setdefault(d, e) if isinstance(d, str) else d for d, e in zip(dims, shape)]
        fits = len(dims) == len(shape) and all(d is None or d == e for d, e in zip(extents, shape))
        if dtype != declared.dtype or not fits:
            raise InputError(
                f"input {declared.name!r} must be {declared.dtype}[{listed(declared.dims)}], got {dtype}{list(shape)}"
                + (f" where {', '.join(f'{s} = {e}' for s, e in symbols.items())}" if symbols else "")
            )


def extents_of(inputs: Sequence[ModelInput], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """What the open dimensions are in a run whose feeds fit and have these shapes."""
    found: dict[str, int] = {}
    for declared in inputs:
        dims, shape = declared.dims, shapes.get(declared.name)
        if dims is not None and shape is not None:
            found.update({dim: extent for dim, extent in zip(dims, shape) if isinstance(dim, str)})
    return found


def is_possible(dims: Sequence[int]) -> bool:
    """Whether a tensor may have these dimensions: what is beyond is damage or attack."""
    try:
        check_shape(dims, "")
    except WorkloadError:
        return False
    return True


def check_possible(name: str, dims: Sequence[Dim] | None) -> None:
    known = [dim for dim in dims or () if isinstance(dim, int)]
    if not is_possible(known):
        raise ModelError(f"input '{name}' has impossible dimensions {listed(known)}")


def _bind(declared: ModelInput, given: tuple[int, ...], symbols: dict[str, int]) -> None:
    name, dims = declared.name, declared.dims
    if dims is None:
        return
    if len(dims) != len(given):
        raise ModelError(
            f"input '{name}' of shape {listed(given)}: the model declares {len(dims)} dimensions ({listed(dims)})"
        )
    for dim, extent in zip(dims, given):
        fixed = symbols.setdefault(dim, extent) if isinstance(dim, str) else dim
        if fixed is not None and fixed != extent:
            raise ModelError(
                f"input '{name}' of shape {listed(given)}: {extent} contradicts the model's {listed(dims)}"
            )


def listed(dims: Sequence[Dim] | None) -> str:
    return "any shape" if dims is None else ",".join("?" if dim is None else str(dim) for dim in dims)
