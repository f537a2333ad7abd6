"""Targets that do not depend on the machine that runs the tests: nests that follow from caches stay the same."""

from __future__ import annotations

from dataclasses import replace

from autotune.target import Target

KIB = 1024


def fixed(text: str) -> Target:
    """The target that a text names, of two threads if it names none, with the caches of a common server core: 32 KiB,
    1 MiB, 32 MiB."""
    threads = "" if "-num-cores=" in text else " -num-cores=2"
    return replace(Target.parse(text + threads), l1_bytes=32 * KIB, l2_bytes=1024 * KIB, l3_bytes=32 * 1024 * KIB)
