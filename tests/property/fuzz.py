"""Many random cases, each in a process that may die: `python -m tests.property.fuzz --cases 10000 --seed 0`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.worker import Worker, WorkerSpec
from tests.property.kernel_check import describe

BATCH = 25


def failures(seeds: Sequence[int], target: str, timeout: float = 120.0) -> Iterator[tuple[int, str]]:
    """(seed, what happened) of every case that fails; a batch that dies is repeated one by one."""
    spec = WorkerSpec("tests.property.kernel_check:worker", {"target": target}, timeout, 3 << 30, 40)
    worker = Worker(spec)
    try:
        for start in range(0, len(seeds), BATCH):
            batch = seeds[start : start + BATCH]
            answer = _ask(worker, batch)
            if not isinstance(answer, Failure):
                yield from answer
                continue
            for seed in batch:
                alone = _ask(worker, [seed])
                yield from [(seed, f"{alone.kind}: {alone.message}")] if isinstance(alone, Failure) else alone
    finally:
        worker.stop()


def _ask(worker: Worker, seeds: Sequence[int]) -> list[tuple[int, str]] | Failure:
    numbers: list[Json] = list(seeds)
    answer = worker.call(Message({"seeds": numbers}))
    if isinstance(answer, Failure):
        return answer
    bad = answer.body["bad"]
    assert isinstance(bad, dict)
    return [(int(seed), str(message)) for seed, message in bad.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--target", default="native -num-cores=2")
    parser.add_argument("--show", type=int, help="print this case and check it, in this process")
    args = parser.parse_args()
    if args.show is not None:
        sys.stdout.write(describe(args.show) + "\n")
        sys.stdout.write(str(list(failures([args.show], args.target)) or "right") + "\n")
        return
    began, found = time.monotonic(), 0
    for seed, message in failures(range(args.seed, args.seed + args.cases), args.target):
        found += 1
        sys.stdout.write(f"case {seed}: {message.splitlines()[0][:400]}\n")
        sys.stdout.flush()
    seconds = time.monotonic() - began
    sys.stdout.write(f"{args.cases} cases, {found} failures, {seconds:.0f} s\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
