"""What is kept of builds, and what makes room."""

from __future__ import annotations

from dataclasses import replace

from autotune.measure.kept_builds import KeptBuilds
from autotune.search_spaces.space.config import Config
from autotune.target import Target
from tests.measure.toy_kernels import build, candidate


def test_what_was_longest_not_asked_for_makes_room() -> None:
    target = Target.parse("native -num-cores=1")
    toy, made = candidate(target), build("good", target)
    numbers = [replace(toy, config=Config.of(template="toy", n=number)) for number in range(3)]
    kept = KeptBuilds(most_bytes=2 * len(made.kernel.object_code))
    kept.add(numbers[0], made)
    kept.add(numbers[1], made)
    assert kept.get(numbers[0]) is made
    kept.add(numbers[2], made)
    assert [kept.get(number) for number in numbers] == [made, None, made]


def test_a_build_takes_the_place_of_an_earlier_one_and_one_beyond_all_room_is_not_kept() -> None:
    target = Target.parse("native -num-cores=1")
    toy, made = candidate(target), build("good", target)
    again = replace(made, seconds=made.seconds + 1)
    kept = KeptBuilds(most_bytes=len(made.kernel.object_code))
    kept.add(toy, made)
    kept.add(toy, again)
    assert kept.get(toy) is again
    large = replace(made, kernel=replace(made.kernel, object_code=made.kernel.object_code * 2))
    kept.add(toy, large)
    assert kept.get(toy) is None
