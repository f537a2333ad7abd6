"""The loops of a stage that copies what another one reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.schedule.editor import Editor
from autotune.tensor.layout import Layout


def in_memory_order(
    edit: Editor, name: str, form: Layout, along: int, lanes: int, *, alone: bool,
    loops: Mapping[int, Sequence[str]] = {},
) -> None:  # fmt: skip
    """The loops of a copy, in vectors of so many lanes or of a block, or as long as what lies side by side in what is
    copied, too.

    Args:
        along: the dimension that is contiguous. `alone`: before all else, and shared among threads.
        loops: those that dimensions are split into already, outermost first.
    """
    stage = edit.stage(name)
    axes, (read,) = [a.name for a in stage.stage.axes], stage.reads()
    width = form.block(along) if form.block(along) > 1 else lanes
    run = edit.schedule.state.layout(read.tensor).block(along)
    ragged = edit.extent(name, axes[along]) % width
    over, lane = edit.split(name, axes[along], width)
    pieces = list[str]()
    if 1 < run < width and width % run == 0:
        piece, lane = edit.split(name, lane, run)
        pieces.append(piece)
    made = {d: [axis] for d, axis in enumerate(axes)} | dict(loops) | {along: [over]}
    around = [x for d, block in form.order if not block and d != along for x in made[d]]
    order = [x for d, block in form.order if not block for x in made[d]]
    edit.order(name, [*(around if ragged else order), *([over] if ragged else []), *pieces, lane])
    edit.unroll(name, pieces)
    edit.vectorize(name, lane)
    shared = around if ragged else order[:-1] or order
    if shared and alone:
        edit.parallel(name, edit.fuse(name, shared))
    if ragged:
        edit.partition(name, [over])
