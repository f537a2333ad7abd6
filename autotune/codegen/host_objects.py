"""All objects of our own that runs on the host may need, for files that bring them."""

from __future__ import annotations

from autotune.codegen import boxes_ir, loop_ir, moves_ir, nonzero_ir, unique_ir
from autotune.codegen.own_objects import own_key, own_object


def host_objects() -> dict[str, bytes]:
    """Object code by what `own_objects.bring` knows it by."""
    texts = [
        (boxes_ir.boxes_ir(), boxes_ir.CPU),
        (loop_ir.loop_ir(), loop_ir.CPU),
        (moves_ir.moves_ir(), moves_ir.CPU),
        (nonzero_ir.nonzero_ir(), nonzero_ir.CPU),
        (unique_ir.unique_ir(), unique_ir.CPU),
    ]
    return {own_key(text, cpu): own_object(text, cpu) for text, cpu in texts}
