"""What a process has once stays what the first who asked was given."""

from __future__ import annotations

import threading
import weakref

from autotune.runtime.once import once


class Thing:
    pass


def test_all_who_ask_at_once_get_the_same_and_it_stays() -> None:
    threads, made, got = 4, list["weakref.ref[Thing]"](), list[int]()
    together = threading.Barrier(threads)

    @once
    def thing(name: str = "") -> Thing:
        together.wait()  # all of them have found that there is none
        found = Thing()
        made.append(weakref.ref(found))
        return found

    asking = [threading.Thread(target=lambda: got.append(id(thing()))) for _ in range(threads)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert len(made) == threads and len(set(got)) == 1
    assert [id(ref()) for ref in made if ref() is not None] == [id(thing())] == [got[0]]


def test_other_arguments_get_others() -> None:
    calls: list[int] = []

    @once
    def square(number: int) -> int:
        calls.append(number)
        return number * number

    assert [square(2), square(3), square(2)] == [4, 9, 4] and calls == [2, 3]
