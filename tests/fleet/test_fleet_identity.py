"""What workers say of themselves: who can work with whom, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from autotune.errors import ClusterError, ExtensionError, TargetError
from autotune.fleet.identity import Identity, build_resource, run_resource
from autotune.fleet.member import IDENTITY, STATE, members_of
from autotune.fleet.place import choose_target
from autotune.target import Target

ONE = Target.parse("native -num-cores=1")
TWO = Target.parse("native -num-cores=2")
OLD = Target.parse("x86 -mcpu=haswell -num-cores=1")
ELSEWHERE = next(f"x86 -mcpu={cpu}" for cpu in ("cascadelake", "skylake-avx512") if cpu != ONE.cpu)
ME = Identity.here()


def test_an_identity_survives_the_wire_and_offers_what_it_describes() -> None:
    identity = Identity.here(builders=3, targets=[ONE, OLD])
    assert Identity.from_json(identity.to_json()) == identity
    assert identity.resources == {
        build_resource(ME.code): 3.0, run_resource(ONE, ME.code): 1.0, run_resource(OLD, ME.code): 1.0
    }  # fmt: skip
    assert ME.difference(identity) == ""


@pytest.mark.parametrize("change", [{"cores": "many"}, {"targets": ["{}"]}, {"targets": 3}, {"versions": []}, {"x": 1}])
def test_what_describes_itself_wrongly_is_refused(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(ME.to_json()), **change})
    with pytest.raises(ClusterError, match=r"describes itself wrongly|no worker of autotune"):
        Identity.from_json(text)


@pytest.mark.parametrize("text", [None, 3, "", "[]", "{", "null"])
def test_what_describes_nothing_is_no_worker(text: object) -> None:
    with pytest.raises(ClusterError):
        Identity.from_json(text)


def test_operators_of_the_user_are_part_of_the_code(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("x = 1\n")
    first = Identity.here([str(script)])
    assert first.code == Identity.here([str(script)]).code != ME.code
    assert "start it with the same --import" in first.difference(ME)
    script.write_text("x = 2\n")
    assert Identity.here([str(script)]).code != first.code
    with pytest.raises(ExtensionError, match="cannot read"):
        Identity.here([str(tmp_path / "absent.py")])


def test_plugins_are_part_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "templates.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("autotune.fleet.identity.plugin_modules", lambda: ("a_plugin",))
    first = Identity.here()
    assert first.code == Identity.here().code != ME.code
    (package / "templates.py").write_text("x = 2\n")
    assert Identity.here().code != first.code


def listed(*identities: Identity, **change: object) -> dict[str, object]:
    return {
        "workers": {
            f"tcp://{number}": {
                "name": number, "resources": one.resources, "last_seen": 1.0, IDENTITY: one.to_json(),
                "metrics": {STATE: {"done": 3, "drift": 0.1}, "cpu": 5.0, "task_counts": {"executing": 1}}, **change,
            }
            for number, one in enumerate(identities)
        }
    }  # fmt: skip


def test_members_are_what_the_scheduler_lists() -> None:
    (member,) = members_of(listed(Identity.here(targets=[ONE])), ME)
    assert (member.name, member.problem, member.offers(run_resource(ONE, ME.code))) == ("0", "", True)
    assert {"done": 3, "drift": 0.1, "executing": 1, "ready": 0}.items() <= dict(member.state).items()
    assert list(members_of({}, ME)) == []


def test_a_member_without_identity_or_with_nonsense_is_a_problem_and_no_fault() -> None:
    for change in ({IDENTITY: None}, {"metrics": {STATE: "fine"}, IDENTITY: "{}"}, {"last_seen": None, IDENTITY: 7}):
        (member,) = members_of(listed(ME, **change), ME)
        assert member.problem and member.identity is None


class Listed:
    """A fleet that is only a list."""

    def __init__(self, *identities: Identity) -> None:
        self.scheduler, self.identity = "tcp://x", ME
        self.members = tuple(members_of(listed(*identities), ME))


def test_a_target_is_that_of_a_runner() -> None:
    fleet = Listed(Identity.here(targets=[ONE, OLD]), Identity.here(targets=[TWO]))
    far = replace(Target.parse(f"{ELSEWHERE} -num-cores=1"), l3_bytes=11 << 20)
    with_far = Listed(Identity.here(targets=[ONE]), Identity.here(targets=[far]))
    assert choose_target(fleet, ONE) == choose_target(fleet, str(ONE)) == ONE  # type: ignore[arg-type]
    assert choose_target(fleet, "x86 -mcpu=haswell -num-cores=1") == OLD  # type: ignore[arg-type]
    assert choose_target(fleet, TWO.key[:-3]) == TWO  # type: ignore[arg-type]
    assert choose_target(with_far, f"{ELSEWHERE} -num-cores=1") == far, "its caches are its own"  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=r"choose one of theirs by --target: (.*, )?x86_64-haswell"):
        choose_target(fleet, ELSEWHERE)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="has no runner; start one by"):
        choose_target(Listed(Identity.here(builders=1)), "native")  # type: ignore[arg-type]
    older = replace(Identity.here(targets=[ONE]), code="0")
    with pytest.raises(ClusterError, match="1 workers cannot be used, such as 0: other code"):
        choose_target(Listed(older), "native")  # type: ignore[arg-type]
