"""Feeds that no program takes: strings, sequences and optionals, as Python and NumPy write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import InputError
from autotune.graph.host import HostValue, MapColumns
from autotune.runtime.executor import Array, as_feed
from autotune.tensor.declared import STRING, ModelInput
from autotune.tensor.dtype import DType


def as_value(declared: ModelInput, given: object) -> HostValue:
    """What was given for an input that is no tensor of numbers: a list of arrays for a sequence, None for an empty
    optional, strings as an array of objects, a dictionary for a map.

    Raises:
        InputError: it is something else.
    """
    wraps = declared.wraps
    if wraps[:1] == ("optional",):
        if given is None:
            return None
        wraps = wraps[1:]
    if wraps == ("map",):
        return _map(declared, given)
    if not wraps:
        return _tensor(declared, given, f"input {declared.name!r}")
    if not isinstance(given, (list, tuple)):
        raise InputError(f"input {declared.name!r} must be a list of arrays, not {type(given).__name__}")
    return [_tensor(declared, item, f"input '{declared.name}[{n}]'") for n, item in enumerate(given)]


def _map(declared: ModelInput, given: object) -> MapColumns:
    """A dictionary as its columns, which are right already where it was one before."""
    where = f"input {declared.name!r}"
    if isinstance(given, MapColumns):
        return given
    if not isinstance(given, Mapping):
        raise InputError(f"{where} must be a dictionary, {declared.form}, not {type(given).__name__}")
    columns = (("key", declared.keys, list(given)), ("value", declared.dtype, list(given.values())))
    return MapColumns(_items(f"{where}: a {what} of {declared.form}", dtype, items) for what, dtype, items in columns)


def _items(where: str, dtype: str, items: Sequence[object]) -> Array:
    """Keys or values, all of one type, as an array."""
    kinds = (str,) if dtype == STRING else (float, int, np.number) if DType(dtype).is_float else (int, np.integer)
    wrong = next((item for item in items if not isinstance(item, kinds) or isinstance(item, bool)), None)
    if wrong is not None:
        raise InputError(f"{where} is {str(wrong)[:40]!r}, {type(wrong).__name__}")
    found = np.empty(len(items), object)
    found[:] = items
    if dtype == STRING:
        return found
    try:
        return found.astype(DType(dtype).numpy)
    except (OverflowError, ValueError, TypeError) as error:
        raise InputError(f"{where} does not fit {dtype}: {error}") from None


def _tensor(declared: ModelInput, given: object, where: str) -> Array:
    if given is None:
        raise InputError(f"{where} must be a tensor, not None")
    if declared.dtype == STRING:
        array = _strings(given, where)
        found = STRING
    else:
        wanted = DType(declared.dtype).numpy
        array = as_feed(where, given, wanted)
        found = declared.dtype if array.dtype == wanted else str(array.dtype)
    dims = declared.dims if declared.dims is not None else (None,) * array.ndim
    fits = len(dims) == array.ndim and all(not isinstance(d, int) or d == e for d, e in zip(dims, array.shape))
    if found != declared.dtype or not fits:
        text = "any shape" if declared.dims is None else ",".join("?" if d is None else str(d) for d in dims)
        raise InputError(f"{where} must be {declared.dtype}[{text}], got {found}{list(array.shape)}")
    return array


def _strings(given: object, where: str) -> Array:
    array = given if isinstance(given, np.ndarray) else np.asarray(given, object)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "UOT":
        raise InputError(f"{where} must be strings, got {array.dtype}{list(array.shape)}")
    found = np.empty(array.size, object)
    found[:] = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in array.reshape(-1)]
    wrong = next((text for text in found if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(f"{where} must be strings, and holds {type(wrong).__name__}")
    return found.reshape(array.shape)
