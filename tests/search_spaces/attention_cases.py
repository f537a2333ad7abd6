"""Random attention workloads: awkward sizes, all orders of dimensions, masks, windows, groups of heads, epilogues."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def random_attention(rng: random.Random, dtype: str = "f32") -> Workload:
    batch, heads, group = rng.choice((1, 2)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2))
    queries, keys = rng.choice((4, 5, 16, 17, 31, 33, 40)), rng.choice((1, 3, 7, 12, 25, 40))
    width, values = rng.choice((4, 8, 16, 20, 32, 64)), rng.choice((4, 16, 24, 40, 100))
    orders = [rng.choice(("bshd", "bhsd", "bhds")) for _ in range(4)]

    def shape(order: str, heads: int, length: int, width: int) -> str:
        extents = {"b": batch, "h": heads, "s": length, "d": width}
        return ",".join(str(extents[letter]) for letter in order) + f":{dtype}"

    text = (
        f"attention q={shape(orders[0], heads * group, queries, width)} k={shape(orders[1], heads, keys, width)} "
        f"v={shape(orders[2], heads, keys, values)} q_heads={heads * group} kv_heads={heads} scale=0.3 "
        f"order={','.join(orders)}"
    )
    if rng.random() < 0.6:
        masks = (f"{queries},{keys}", f"1,1,{keys}", f"{batch},1,1,{keys}", f"{batch},{heads * group},{queries},{keys}")
        text += f" mask={rng.choice(masks)}{rng.choice(('', ':bool', ':bool fill=-0.5'))} extras=mask"
    text += rng.choice(("", " causal=true", " causal=true offset=-1", " softcap=2.0", " window=1,2"))
    return parse_workload(text + rng.choice(("", "", " + relu")))
