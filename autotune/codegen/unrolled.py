"""What is true of an unrolled loop, whatever is around it: found once, though its body is written again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autotune.codegen.polynomials import is_function
from autotune.lower.ir import Condition, For, If, Load, Store, expressions, statements
from autotune.tensor.expr import Unary
from autotune.tensor.linear import Linear


class Unrolled(NamedTuple):
    """Facts about the turns of a loop.

    Attributes:
        alike: they all touch memory alike; else guards depend on the loop's variable, so that some may touch less.
        apart: their plain stores may come after all else in the loop: nothing in it reads what they write.
        chains: they are functions' long chains that do not wait for each other.
    """

    alike: bool
    apart: bool
    chains: bool

    @staticmethod
    def of(loop: For) -> Unrolled:
        inner = list(statements(loop.body))
        stores = [s for s in inner if isinstance(s, Store)]
        loops = [s for s in inner if isinstance(s, For)]
        values = [e for s in stores for e in expressions(s)]
        guards = [s.when for s in inner if isinstance(s, If)]
        written = {buffer.name for s in stores for buffer, _ in s.targets}
        read = {e.buffer.name for e in values if isinstance(e, Load)}
        plain = all(s.fold is None for s in stores) and not written & read
        plain = plain and len(stores) + len(loops) == len(inner)
        return Unrolled(
            alike=not any(mentions(when, loop.var) for when in guards),
            apart=plain and all(s.mark in ("unroll", "vectorize") for s in loops),
            chains=plain
            and not any(s.mark == "unroll" and s.extent > 1 for s in loops)
            and any(isinstance(e, Unary) and is_function(e.op) for e in values),
        )


def mentions(when: Sequence[Condition], variable: str) -> bool:
    """Whether conditions depend on a variable, as far as can be seen."""
    return any(not isinstance(c, Linear) or c.is_opaque or variable in c.variables() for c in when)
