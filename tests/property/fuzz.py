"""Many random cases, each in a process that may die: `python -m tests.property.fuzz --cases 10000 --seed 0`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Generator, Sequence

from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.worker import Worker, WorkerSpec
from tests.property.kernel_check import describe

BATCH = 25
START_SECONDS = 600.0  # for imports and the runtime's object: a campaign gives way to whatever else runs
SCHEDULES = "tests.property.kernel_check:worker"
TEMPLATES = "tests.property.template_check:worker"
GRAPHS = "tests.property.graph_check:worker"
QUANTIZED = "tests.property.quantized_check:worker"


def failures(
    seeds: Sequence[int], target: str, timeout: float = 300.0, entry: str = SCHEDULES
) -> Generator[tuple[int, str], None, int]:
    """(seed, what happened) of every case that fails; a batch that dies is repeated one by one.

    Returns:
        How many cases were refused: schedules that cannot be, and say so.
    """
    spec = WorkerSpec(entry, {"target": target}, timeout, 3 << 30, 40, start_timeout=START_SECONDS)
    worker = Worker(spec)
    refused = 0
    try:
        for start in range(0, len(seeds), BATCH):
            batch = seeds[start : start + BATCH]
            answer = _ask(worker, batch)
            if not isinstance(answer, Failure):
                refused += answer[1]
                yield from answer[0]
                continue
            for seed in batch:
                alone = _ask(worker, [seed])
                if isinstance(alone, Failure):
                    yield seed, f"{alone.kind}: {alone.message}"
                else:
                    refused += alone[1]
                    yield from alone[0]
    finally:
        worker.stop()
    return refused


def every(cases: Generator[tuple[int, str], None, int]) -> tuple[list[tuple[int, str]], int]:
    """All cases that fail, and how many were refused."""
    found = []
    while True:
        try:
            found.append(next(cases))
        except StopIteration as end:
            return found, int(end.value)


def _ask(worker: Worker, seeds: Sequence[int]) -> tuple[list[tuple[int, str]], int] | Failure:
    """The cases that failed, and how many were refused."""
    numbers: list[Json] = list(seeds)
    answer = worker.call(Message({"seeds": numbers}))
    if isinstance(answer, Failure):
        return answer
    bad = answer.body["bad"]
    assert isinstance(bad, dict)
    return [(int(seed), str(message)) for seed, message in bad.items()], int(str(answer.body["refused"]))


def tally(cases: Generator[tuple[int, str], None, int], tell: Callable[[str], object]) -> tuple[int, int]:
    """Run the cases of `failures`, telling of each failure as it comes; how many failed, and how many were refused."""
    failed = 0
    while True:
        try:
            seed, message = next(cases)
        except StopIteration as end:
            return failed, int(end.value)
        failed += 1
        tell(f"case {seed}: {message.splitlines()[0][:400]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--target", default="native -num-cores=2")
    parser.add_argument("--templates", action="store_true", help="configs of templates instead of random schedules")
    parser.add_argument("--graphs", action="store_true", help="random ONNX models against onnx.reference instead")
    parser.add_argument("--quantized", action="store_true", help="quantised graphs and products of bytes instead")
    parser.add_argument("--show", type=int, help="print this case and check it, in this process")
    args = parser.parse_args()
    if args.show is not None:
        sys.stdout.write(describe(args.show) + "\n")
        sys.stdout.write(str(list(failures([args.show], args.target)) or "right") + "\n")
        return
    began = time.monotonic()
    chosen = ((QUANTIZED, args.quantized), (GRAPHS, args.graphs), (TEMPLATES, args.templates), (SCHEDULES, True))
    entry = next(entry for entry, wanted in chosen if wanted)
    cases = failures(range(args.seed, args.seed + args.cases), args.target, entry=entry)
    found, refused = tally(cases, lambda line: sys.stderr.write(f"{line}\n"))
    seconds = time.monotonic() - began
    sys.stdout.write(f"{args.cases} cases, {found} failures, {refused} refused, {seconds:.0f} s\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
