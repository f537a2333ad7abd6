"""Operators that run on the host: the shape of what they give depends on data, so no static program computes it.

This is the whole set; everything else of a model runs as generated code. `boxes`: NonMaxSuppression. `ngrams`:
TfIdfVectorizer. `selection`: Compress (where its condition is known at run time only), NonZero, Unique. These functions
are the reference; `autotune.compiler.host` has compiled code for some.
"""

from autotune.graph.host import boxes, ngrams, selection
from autotune.graph.host.boxes import Suppression
from autotune.graph.host.node import HostFunction, HostNode, host_function, host_operators, on_host, run_host
from autotune.graph.host.selection import scalar_nonzero

FAMILIES = (boxes, ngrams, selection)  # importing a family registers its functions

__all__ = [
    "FAMILIES",
    "HostFunction",
    "HostNode",
    "Suppression",
    "host_function",
    "host_operators",
    "on_host",
    "run_host",
    "scalar_nonzero",
]
