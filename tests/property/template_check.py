"""One property case of the templates: does a random config of a random workload compute it, in random layouts?"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.codegen.kernel import build_kernel
from autotune.compiler.precise import rounds_tiles
from autotune.errors import AutotuneError, ConfigError, ScheduleError
from autotune.measure.bench import Bench, TaskData
from autotune.measure.builder import algorithm_of
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.reference import allowance, make_reference
from autotune.measure.verify import verify
from autotune.ops import parse_workload
from autotune.ops.conv import MOST_POINTS
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool
from autotune.search_spaces import Config, Interface, make_schedule
from autotune.search_spaces.sketch.folding import has_tiles
from autotune.search_spaces.sketch.scaled_digits import instruction
from autotune.search_spaces.space import templates as _templates  # noqa: F401  registers those that come with autotune
from autotune.search_spaces.space.registry import Template, lookup, names
from autotune.target import Target
from tests.property.in_place_check import differs_in_place
from tests.search_spaces import (
    attention_cases,
    bytes_cases,
    coded_cases,
    conv_cases,
    generic_cases,
    halves_cases,
    matmul_cases,
    pieces_cases,
    pixels_cases,
    recurrent_cases,
    rows_cases,
    strassen_cases,
)
from tests.search_spaces.volume_cases import random_volume

THREADS = (1, 2, 3)
TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
TRIES = 200
LONG_SUMS = (512, 768, 1000)
REFUSED = "refused: "
DIGITS = "sketch.scaled_digits"
PIXELS = "sketch.pixels"
ON_TILES = (".pieces", PIXELS)
ROUNDED = "_bf16"


@dataclass(frozen=True, slots=True)
class Case:
    """A candidate; `interface` None leaves the layouts to the template."""

    workload: Workload
    config: Config
    interface: Interface | None
    target: Target


@functools.cache
def templates() -> tuple[str, ...]:
    """Names of all templates that come with autotune, but those whose instructions no target here has."""
    known = (name for name in names() if type(lookup(name).rules).__module__.startswith("autotune."))
    return tuple(name for name in known if any(_has_instructions(name, target) for target in _targets()))


def _has_instructions(name: str, target: Target) -> bool:
    if name.endswith(ON_TILES):
        return has_tiles(target)
    if name.endswith(ROUNDED):
        return rounds_tiles(target)
    return name != DIGITS or instruction(target) is not None


@functools.cache
def _targets() -> tuple[Target, ...]:
    return tuple(Target.parse(text) for text in TARGETS)  # a look at the machine takes longer than a small kernel


def case(seed: int) -> Case:
    """Case number `seed`: the same on every machine with the same vector width."""
    rng = random.Random(seed)
    known = templates()
    entry = lookup(known[seed % len(known)])
    for _ in range(TRIES):
        target = rng.choice(_targets())
        workload, interface = _workload(rng, entry, target)
        if entry.applies(workload, target):
            break
    else:
        raise AssertionError(f"no random workload suits {entry.name}; teach the generator of its family")
    config = entry.default(workload, target) if rng.random() < 0.2 else entry.space(workload, target).sample(rng)
    return Case(workload, config.replace(template=entry.name), interface, target)


def _image(rng: random.Random) -> Workload:
    """A strided convolution of few channels."""
    stride = rng.choice((2, 2, 3, 4))
    window = rng.randint(stride + 1, 5 * stride)
    pad = ",".join(str(rng.randint(0, window - 1)) for _ in range(4))
    h, w = rng.randint(window, 45), rng.randint(window, 90)
    rest = rng.choice(("", "+ bias", "+ bias + relu", "+ bias + residual + relu"))
    c, k = rng.randint(1, 4), rng.choice((16, 32, 64))
    text = f"conv2d data={rng.choice((1, 1, 2))},{c},{h},{w} weight={k},{c},{window},{window}"
    return parse_workload(f"{text} stride={stride} pad={pad} {rest}")


def _rounded(entry: Template) -> str:
    return f"rounded={MOST_POINTS}" if entry.name.endswith(ROUNDED) else ""


def _workload(rng: random.Random, entry: Template, target: Target) -> tuple[Workload, Interface | None]:
    """A workload of the template's family, with awkward sizes, and layouts for it."""
    family = entry.op or rng.choice(("conv2d", "matmul", "", "", ""))
    if entry.name == "conv2d.winograd_image":
        workload = _image(rng)
        return workload, None if rng.random() < 0.4 else conv_cases.random_interface(rng, workload, target.lanes(4))
    if entry.name.startswith("conv3d.winograd"):
        return random_volume(rng, "exact" in entry.name, _rounded(entry)), None
    if "winograd_exact" in entry.name:
        return bytes_cases.random_windows_of_three(rng), None
    if "winograd" in entry.name:
        c, k = rng.choice((16, 32, 48, 64)), rng.choice((16, 32, 64))
        stride = rng.choice((1, 1, 2))
        window = rng.choice((3, 3, 3, 4, 5)) if stride == 1 else rng.randint(3, 6)
        h, w = rng.randint(window, 14 + 3 * stride), rng.randint(window, 14 + 3 * stride)
        pad = rng.choice(("0", "1", "0,1,1,0", "2", "0,0,2,1"))
        rest = rng.choice(("", "+ bias", "+ bias + relu", "+ bias + residual + relu"))
        text = f"conv2d data={rng.choice((1, 1, 2))},{c},{h},{w} weight={k},{c},{window},{window}"
        return parse_workload(f"{text} pad={pad} stride={stride} {_rounded(entry)} {rest}"), None
    if "strassen" in entry.name:
        workload = strassen_cases.random_halves(rng, family, exact="exact" in entry.name)
        plain = family == "matmul" or rng.random() < 0.5
        return workload, None if plain else conv_cases.random_interface(rng, workload, target.lanes(4))
    if entry.name.endswith(".pieces"):
        workload = pieces_cases.random_product(rng, family)
        plain = family == "matmul" or rng.random() < 0.5
        return workload, None if plain else conv_cases.random_interface(rng, workload, target.lanes(4))
    if family.startswith("conv") and family != "conv2d":
        workload = conv_cases.random_ranked(rng, family)
        plain = rng.random() < 0.4
        return workload, None if plain else conv_cases.random_interface(rng, workload, target.lanes(4))
    if family == "conv2d":
        workload = conv_cases.random_conv(rng, rng.choice(("dense", "depthwise", "grouped")))
        plain = rng.random() < 0.4
        return workload, None if plain else conv_cases.random_interface(rng, workload, target.lanes(4))
    if family == "matmul":
        depths = LONG_SUMS if entry.name == "sketch.parts" else matmul_cases.EXTENTS
        return matmul_cases.random_matmul(rng, constant=rng.random() < 0.5, depths=depths), None
    if family == "attention":
        return attention_cases.random_attention(rng, rng.choice(("f32", "bf16"))), None
    if entry.name in ("sketch.scaled", DIGITS):
        return coded_cases.random_coded(rng), None
    if entry.name == "sketch.widened":
        return rng.choice((bytes_cases.random_bytes, halves_cases.random_halves))(rng), None
    if entry.name == "sketch.rows":
        return rows_cases.random_in_rows(rng), None
    if entry.name == PIXELS:
        workload = pixels_cases.random_small_image(rng)
        plain = rng.random() < 0.4
        return workload, None if plain else conv_cases.random_interface(rng, workload, target.lanes(4))
    if entry.name == "sketch.wide":
        return halves_cases.random_halves(rng), None
    if entry.name == "recurrent":
        return recurrent_cases.random_layer(rng), None
    workload = generic_cases.norm(rng) if family == "lrn" else generic_cases.random_workload(rng)
    return workload, generic_cases.random_interface(workload, rng)


def run(seed: int) -> str | None:
    """Case `seed`: None when right, "refused: ..." when the config has no schedule, else what happened.

    A template's own choice, in its own layouts, must have one.
    """
    one = case(seed)
    try:
        schedule = make_schedule(one.workload, one.config, one.target, one.interface)
    except (ScheduleError, ConfigError) as error:
        rules = lookup(one.config.template or "")
        own = one.interface is None and one.config == rules.default(one.workload, one.target).replace(
            template=rules.name
        )
        return f"the default is refused: {error}" if own else f"{REFUSED}{error}"
    try:
        kernel = build_kernel(schedule, one.target)
    except AutotuneError as error:
        return f"{type(error).__name__}: {error}"
    with Bench(kernel, TaskData(make_reference(one.workload, seed)), max(THREADS)) as bench:
        found = verify(
            bench, [_pool(n) for n in THREADS], allowance(one.workload, algorithm_of(one.workload, schedule))
        )
        return found.message if isinstance(found, Failure) else differs_in_place(bench, one.workload, _pool(2))


@functools.lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPool:
    return ThreadPool(threads, 1)


def worker(init: Mapping[str, Json]) -> Callable[[Message], Message]:
    """Entry point of an isolated process: {"seeds": [...]} to {"bad": {seed: message}, "refused": n}."""

    def handle(request: Message) -> Message:
        seeds = request.body["seeds"]
        assert isinstance(seeds, list)
        found = {str(seed): run(int(str(seed))) for seed in seeds}
        bad: dict[str, Json] = {s: m for s, m in found.items() if m is not None and not m.startswith(REFUSED)}
        refused = sum(message is not None and message.startswith(REFUSED) for message in found.values())
        return Message({"bad": bad, "refused": refused})

    return handle
