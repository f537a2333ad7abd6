"""How quiet a machine is, told from the counters of machines that are files."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from autotune.measure.quiet import Disturbance, Waiting, Watch, wait_until_quiet

OWN = 100
TICKS = 100  # per second, as sysconf has it on Linux


class FakeMachine:
    """A /proc with `cpus` CPUs, our process, and counters that the test turns."""

    def __init__(self, root: Path, cpus: int = 2) -> None:
        self.root = root
        self.cpus = [[0] * 10 for _ in range(cpus)]
        self.processes = {1: [0, 0], OWN: [1, 0]}  # parent, ticks
        self.load = 0.0
        self.write()

    def write(self) -> None:
        lines = [f"cpu{n} {' '.join(map(str, ticks))}" for n, ticks in enumerate(self.cpus)]
        total = [sum(column) for column in zip(*self.cpus, strict=True)]
        proc = self.root / "proc"
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "stat").write_text("\n".join([f"cpu  {' '.join(map(str, total))}", *lines, "intr 1 2 3", "ctxt 4"]))
        (proc / "loadavg").write_text(f"{self.load} 1.00 1.00 1/100 12345\n")
        for pid, (parent, ticks) in self.processes.items():
            (proc / str(pid)).mkdir(exist_ok=True)
            (proc / str(pid) / "stat").write_text(
                f"{pid} (a (strange) name) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0"
            )

    def second(self, ours: float = 0.0, others: float = 0.0, stolen: float = 0.0, pid: int = OWN) -> None:
        """One second in which so many cores were busy."""
        count = len(self.cpus)
        for ticks in self.cpus:
            ticks[0] += round(TICKS * (ours + others) / count)
            ticks[7] += round(TICKS * stolen / count)
            ticks[3] += round(TICKS * (count - ours - others - stolen) / count)
        self.processes[pid][1] += round(TICKS * ours)
        self.write()

    def watch(self, threads: int = 2, cores: int = 2) -> Watch:
        return Watch(threads, self.root, range(len(self.cpus)), cores, OWN)


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_our_own_work_is_no_disturbance(fake: FakeMachine) -> None:
    watch = fake.watch()
    fake.second(ours=2.0)
    found = watch.look()
    assert found.quiet and found.crowded == 0 and found.describe() == ""


def test_what_our_children_do_is_ours(fake: FakeMachine) -> None:
    fake.processes |= {200: [OWN, 0], 300: [200, 0]}
    fake.write()
    watch = fake.watch()
    fake.second(ours=1.5, pid=300)
    assert watch.look().quiet


def test_what_others_do_is_told(fake: FakeMachine) -> None:
    fake.load = 3.5
    watch = fake.watch()
    fake.second(ours=1.0, others=1.0)
    found = watch.look()
    assert not found.quiet
    assert found.crowded == pytest.approx(0.5)
    assert found.describe() == "other programs took 50 % of the cores' time (load 3.5)"


def test_who_took_most_is_named(fake: FakeMachine) -> None:
    fake.processes |= {50: [1, 900], 51: [1, 0], 52: [1, 0]}
    fake.write()
    watch = fake.watch()
    fake.processes[51][1] += 60
    fake.processes[52][1] += 40
    fake.second(ours=1.0, others=1.0)
    for pid, name in ((51, "cc1plus"), (52, "an\x1b[1m (odd) one"), (50, "idle")):
        path = fake.root / f"proc/{pid}/stat"
        path.write_text(path.read_text().replace("a (strange) name", name))
    found = watch.look()
    assert found.by == ("cc1plus", "an?[1m (odd) one")
    assert found.describe().startswith("other programs, mostly cc1plus and an?[1m (odd) one, took 50 %")


def test_heat_is_told(fake: FakeMachine) -> None:
    count = fake.root / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count"
    count.parent.mkdir(parents=True)
    count.write_text("7\n")
    watch = fake.watch()
    fake.second(ours=1.0)
    assert watch.look().quiet
    count.write_text("9\n")
    fake.second(ours=1.0)
    found = watch.look()
    assert not found.quiet and found.describe() == "cores lowered their clock because they were hot (load 0.0)"


def test_others_on_cores_that_we_leave_do_not_matter(fake: FakeMachine) -> None:
    watch = fake.watch(threads=1)
    fake.second(ours=1.0, others=1.0)
    assert watch.look().quiet


def test_the_host_of_a_virtual_machine_counts(fake: FakeMachine) -> None:
    watch = fake.watch()
    fake.second(ours=1.0, stolen=0.2)
    found = watch.look()
    assert not found.quiet and found.stolen == pytest.approx(0.1)
    assert "host took 10 %" in found.describe()


def test_each_look_begins_where_the_last_ended(fake: FakeMachine) -> None:
    watch = fake.watch()
    fake.second(others=2.0)
    assert not watch.look().quiet
    fake.second()
    assert watch.look().quiet


def test_other_cpus_than_ours_do_not_count(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path, cpus=4)
    fake.watch()
    watch = Watch(2, tmp_path, [0, 1], 2, OWN)
    for ticks in fake.cpus[2:]:
        ticks[0] += 100
    for ticks in fake.cpus[:2]:
        ticks[3] += 100
    fake.write()
    assert watch.look().quiet


@pytest.mark.parametrize("text", ["", "cpu0", "cpu0 a b c d e f g h\ncpu1 1 2", "\0\0\0"])
def test_counters_that_cannot_be_read_say_nothing(fake: FakeMachine, text: str) -> None:
    watch = fake.watch()
    (fake.root / "proc/stat").write_text(text)
    (fake.root / "proc/loadavg").unlink()
    assert watch.look() == Disturbance()


def test_threads_for_which_there_are_no_cores_disturb_nobody(fake: FakeMachine) -> None:
    watch = fake.watch(threads=99)
    fake.second(ours=2.0)
    assert watch.look().quiet
    fake.second(ours=1.5, others=0.5)
    assert watch.look().crowded == pytest.approx(0.25)


def test_a_control_group_that_stops_us_is_told(fake: FakeMachine) -> None:
    (fake.root / "proc/self").mkdir(parents=True)
    (fake.root / "proc/self/cgroup").write_text("0::/\n")
    group = fake.root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 1000000\n")
    watch = fake.watch()
    fake.second(ours=1.0)
    assert watch.look().quiet
    (group / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 1400000\n")
    fake.second(ours=1.0)
    found = watch.look()
    assert not found.quiet and found.limited == pytest.approx(0.2)
    assert found.describe() == "the control group's limit stopped us for 20 % (load 0.0)"


def test_no_proc_at_all(tmp_path: Path) -> None:
    assert Watch(2, tmp_path, [0, 1], 2, OWN).look() == Disturbance()


def test_waiting_ends_with_the_first_quiet_moment(fake: FakeMachine) -> None:
    now = 0.0
    waited = []

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        waited.append(seconds)
        fake.second(others=2.0 if len(waited) < 3 else 0.0)

    assert wait_until_quiet(fake.watch(), 60.0, lambda: now, pause).quiet
    assert len(waited) == 3


def test_waiting_has_an_end(fake: FakeMachine) -> None:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        fake.second(others=2.0)

    assert not wait_until_quiet(fake.watch(), 2.0, lambda: now, pause).quiet
    assert 2.0 <= now < 3.0


def test_waiting_for_a_core_is_summed_over_the_threads(tmp_path: Path) -> None:
    assert Waiting(tmp_path).seconds() == 0.0
    for name, text in (("1", "5 2000000000 7"), ("2", "5 500000000 7"), ("3", ""), ("4", "a b c")):
        (tmp_path / "proc/self/task" / name).mkdir(parents=True)
        (tmp_path / "proc/self/task" / name / "schedstat").write_text(text)
    waiting = Waiting(tmp_path)
    assert waiting.seconds() == 2.5
    (tmp_path / "proc/self/task/2/schedstat").write_text("6 700000000 8")
    assert waiting.seconds() == pytest.approx(2.7), "the counters are read again"


def test_threads_that_end_and_begin_neither_fail_nor_count_back() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    waiting = Waiting()
    found = [waiting.seconds()]
    go.set()
    thread.join()
    found.append(waiting.seconds())
    late = threading.Thread(target=lambda: found.append(waiting.seconds()))
    late.start()
    late.join()
    found.append(waiting.seconds())
    assert found == sorted(found)


def test_this_machine_can_be_watched() -> None:
    found = Watch(1).look()
    assert found.crowded >= 0 and found.load >= 0
