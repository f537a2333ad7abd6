"""Who gets a core that becomes free; what begins is scripted."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from autotune.measure.shared_cores import AGAIN, LATELY, SharedCores

MOST_OF_THEM = LATELY // 2 + 1


class Begun:
    """What has begun, in order, and how to end it."""

    def __init__(self, cores: SharedCores) -> None:
        self.cores = cores
        self.names: list[str] = []
        self._inner: dict[str, Future[str]] = {}

    def build(self, name: str) -> Future[str]:
        return self.cores.build(lambda: self._start(name))

    def run(self, name: str) -> Future[str]:
        return self.cores.run(lambda: self._start(name))

    def end(self, name: str) -> None:
        self._inner[name].set_result(name)

    def _start(self, name: str) -> Future[str]:
        self.names.append(name)
        self._inner[name] = Future()
        return self._inner[name]


def test_all_cores_build_and_a_kernel_gets_the_next_that_is_free() -> None:
    begun = Begun(SharedCores(cores=2, threads=1, builders=2))
    builds = [begun.build(name) for name in ("a", "b", "c", "d")]
    assert begun.names == ["a", "b"]
    begun.end("a")
    assert begun.names == ["a", "b", "c"] and builds[0].result(0) == "a"
    run = begun.run("A")
    assert begun.names[-1] == "c"
    begun.end("b")
    assert begun.names[-1] == "A"
    begun.end("c")
    assert begun.names[-1] == "d"
    begun.end("A")
    assert run.result(0) == "A" and begun.names == ["a", "b", "c", "A", "d"]


def test_a_kernel_of_several_threads_waits_for_as_many_cores() -> None:
    begun = Begun(SharedCores(cores=3, threads=2, builders=3))
    for name in ("a", "b", "c"):
        begun.build(name)
    begun.run("A")
    begun.build("d")
    begun.end("c")
    assert begun.names == ["a", "b", "c"], "a build that began now would keep the kernel waiting"
    begun.end("a")
    assert begun.names[-1] == "A"
    begun.end("b")
    assert begun.names[-1] == "d"


def test_no_more_builds_than_builders_and_kernels_run_beside_them() -> None:
    begun = Begun(SharedCores(cores=8, threads=1, builders=2))
    for name in ("a", "b", "c"):
        begun.build(name)
    begun.run("A")
    assert begun.names == ["a", "b", "A"]


def test_a_kernel_of_more_threads_than_cores_has_them_all() -> None:
    begun = Begun(SharedCores(cores=1, threads=2, builders=1))
    begun.build("a")
    begun.run("A")
    assert begun.names == ["a"]
    begun.end("a")
    assert begun.names == ["a", "A"]


def test_where_builds_disturb_most_kernels_they_wait() -> None:
    cores = SharedCores(cores=2, threads=1, builders=2)
    begun = Begun(cores)
    for disturbed in (False, True) * (LATELY // 2):
        cores.learn(disturbed)
    begun.build("a")
    begun.run("A")
    assert begun.names == ["a", "A"], "half of them may have met somebody else"
    begun.end("a")
    begun.end("A")
    cores.learn(True)
    begun.build("b")
    begun.run("B")
    assert begun.names[-1] == "b"
    begun.end("b")
    begun.build("c")
    assert begun.names[-1] == "B"
    begun.end("B")
    assert begun.names[-1] == "c"


def test_where_waiting_does_not_help_builds_go_on() -> None:
    cores = SharedCores(cores=2, threads=1, builders=2)
    begun = Begun(cores)
    for _ in range(MOST_OF_THEM):
        cores.learn(True)
    begun.run("A")
    begun.build("a")
    assert begun.names == ["A"], "perhaps builds disturb it"
    begun.end("A")
    begun.end("a")
    for _ in range(AGAIN - 1):
        cores.learn(True)
    begun.run("B")
    begun.build("b")
    assert begun.names == ["A", "a", "B", "b"], "somebody else does, whatever we do"


def test_where_waiting_helps_a_little_only_builds_go_on() -> None:
    cores = SharedCores(cores=2, threads=1, builders=2)
    begun = Begun(cores)
    for _ in range(MOST_OF_THEM):
        cores.learn(True)
    for disturbed in (True, False, False) * MOST_OF_THEM:  # a third of them, where it was more than half
        cores.learn(disturbed)
    begun.run("A")
    begun.build("a")
    assert begun.names == ["A", "a"]


def test_after_a_quiet_while_builds_go_on_until_they_disturb_again() -> None:
    cores = SharedCores(cores=2, threads=1, builders=2)
    begun = Begun(cores)

    def builds_go_on(run: str, build: str) -> bool:
        begun.run(run)
        begun.build(build)
        beside = begun.names[-1] == build
        begun.end(run)
        begun.end(build)
        return beside

    for _ in range(MOST_OF_THEM):
        cores.learn(True)
    for _ in range(AGAIN - 1):
        cores.learn(False)
    assert not builds_go_on("A", "a")
    cores.learn(False)
    assert builds_go_on("B", "b")
    for _ in range(MOST_OF_THEM):
        cores.learn(True)
    assert not builds_go_on("C", "c")


def test_kernels_that_wait_for_the_runner_keep_no_core() -> None:
    begun = Begun(SharedCores(cores=3, threads=1, builders=3))
    for name in ("A", "B"):
        begun.run(name)
    for name in ("a", "b", "c"):
        begun.build(name)
    assert begun.names == ["A", "a", "b"]
    begun.end("A")
    assert begun.names == ["A", "a", "b", "B"]
    begun.end("B")
    assert begun.names[-1] == "c"


def test_what_nobody_waits_for_any_more_does_not_begin() -> None:
    begun = Begun(SharedCores(cores=1, threads=1, builders=1))
    begun.build("a")
    assert begun.build("b").cancel()
    begun.build("c")
    begun.end("a")
    assert begun.names == ["a", "c"]


def test_an_error_is_whoever_waits_for_it_and_frees_the_core() -> None:
    cores = SharedCores(cores=1, threads=1, builders=1)

    def closed() -> Future[str]:
        raise RuntimeError("closed")

    with pytest.raises(RuntimeError, match="closed"):
        cores.build(closed).result(0)
    broken: Future[str] = Future()
    broken.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        cores.run(lambda: broken).result(0)
    done: Future[str] = Future()
    done.set_result("done")
    assert cores.build(lambda: done).result(0) == "done"
