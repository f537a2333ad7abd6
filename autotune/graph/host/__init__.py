"""Operators that run on the host: the shape of what they give depends on data, so no static program computes it, or it
is no tensor of numbers.

This is the whole set; everything else of a model runs as generated code. `boxes`: NonMaxSuppression. `ngrams`:
TfIdfVectorizer. `selection`: Compress (where its condition is known at run time only), NonZero, Unique. `sequences`:
those of sequences and optionals that conversion does not see through. `strings`: tensors of strings. `movement`: what
moves elements of values that stay on the host. `labels`: maps of strings, and classes with their scores. `maps`:
inputs that are maps. These functions are the reference; `autotune.compiler.host` has compiled code for some. `eager` is
apart: what takes so little time that no program is made for shapes that hardly come twice; there the compiled operator
is the reference.
"""

from autotune.graph.host import (
    boxes,
    eager_movement,
    eager_numbers,
    labels,
    maps,
    movement,
    ngrams,
    selection,
    sequences,
    strings,
)
from autotune.graph.host.eager import eager, is_eager
from autotune.graph.host.eager_numbers import BROADCAST
from autotune.graph.host.node import (
    HostFunction,
    HostNode,
    HostValue,
    MapColumns,
    described,
    host_function,
    host_operators,
    makes_strings,
    makes_values,
    of_values,
    on_host,
    run_host,
    value_function,
)
from autotune.graph.host.selection import by_place, scalar_nonzero
from autotune.graph.host.sequences import cut_points

FAMILIES = (
    boxes,
    eager_movement,
    eager_numbers,
    labels,
    maps,
    movement,
    ngrams,
    selection,
    sequences,
    strings,
)  # importing a family registers them

__all__ = [
    "BROADCAST",
    "FAMILIES",
    "HostFunction",
    "HostNode",
    "HostValue",
    "MapColumns",
    "by_place",
    "cut_points",
    "described",
    "eager",
    "host_function",
    "host_operators",
    "is_eager",
    "makes_strings",
    "makes_values",
    "of_values",
    "on_host",
    "run_host",
    "scalar_nonzero",
    "value_function",
]
