"""What every test shares: skipping by CPU feature, and running generated code where it may crash."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from autotune import machine, plugins
from autotune.graph.frontend import node as nodes
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.worker import Worker, WorkerSpec
from autotune.ops import registry as operators
from autotune.plugins import load_plugins
from autotune.schedule import Schedule
from autotune.search_spaces.space import registry as templates
from tests.hasty import be_hasty

Right = Callable[..., None]
Golden = Callable[[str], None]
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


def pytest_configure() -> None:
    """No example has a deadline: on a machine that does other work each may take long.

    How wide a terminal is says the test that asks, not who runs it: processes of pytest-xdist are told of theirs.

    Under nohup, and in a script's background job, Ctrl-C is ignored; what tests start would inherit that.
    """
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `isa(name)` where this CPU lacks the feature, and say which."""
    features = machine.cpu_features()
    for item in items:
        for marker in item.iter_markers("isa"):
            if marker.args[0] not in features:
                item.add_marker(pytest.mark.skip(reason=f"this CPU has no {marker.args[0]}"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(text)`: the text equals tests/golden/<test file>/<test>.txt; --update-golden writes that file."""
    path = GOLDEN / request.path.stem.removeprefix("test_") / f"{request.node.name.removeprefix('test_')}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read what it wrote"
        assert text == path.read_text()

    return compare


@pytest.fixture(autouse=True)
def usual_rounding() -> None:
    """What another engine told this thread of denormals (ONNX Runtime: as zero) does not outlast its test."""
    fesetenv, usual = ctypes.CDLL("libm.so.6").fesetenv, ctypes.c_void_p(-1)  # FE_DFL_ENV of <fenv.h>
    assert fesetenv(usual) == 0


@pytest.fixture(autouse=True)
def own_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers makes no later test's process one that is extended: no helper would build for that."""
    monkeypatch.setattr(plugins, "_registered", list(plugins._registered))


@pytest.fixture(autouse=True, scope="module")
def hasty() -> Iterator[None]:
    """For the tests of a module that tune in this process; one about what is waited for has a `hasty` of its own."""
    with pytest.MonkeyPatch.context() as patch:
        be_hasty(patch.setattr)
        yield


@pytest.fixture
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plugin is loaded yet; what the test registers leaves with it, the modules of operators and templates, too."""
    registries = (operators, "_OPERATORS"), (templates, "_TEMPLATES"), (nodes, "_CONVERTERS"), (nodes, "_MOST_INPUTS")
    for module, name in registries:
        monkeypatch.setattr(module, name, dict(getattr(module, name)))
    load_plugins.cache_clear()
    known = {*operators._OPERATORS, *templates._TEMPLATES}
    yield
    registered = {op.name: op.compute.__module__ for op in operators._OPERATORS.values()}
    registered |= {entry.name: type(entry.rules).__module__ for entry in templates._TEMPLATES.values()}
    for name in registered.keys() - known:
        sys.modules.pop(registered[name], None)
    load_plugins.cache_clear()


@pytest.fixture(scope="session")
def kernel_worker() -> Iterator[Worker]:
    """A process of its own for generated code."""
    init = {"target": "native -num-cores=2"}
    worker = Worker(WorkerSpec("tests.property.kernel_check:worker", dict(init), 60.0, 3 << 30))
    yield worker
    worker.stop()


@pytest.fixture
def right(kernel_worker: Worker) -> Right:
    """`right(schedule)`: its kernel computes what the definition says, with 1 to 3 threads, and strays nowhere.

    Inputs are named in0, in1, ...; with special=True, floats hold NaN, infinities and signed zeros.
    """

    def run(schedule: Schedule, special: bool = False, target: str = "native -num-cores=2") -> None:
        body: dict[str, Json] = {"schedule": schedule.to_json(), "special": special, "target": target}
        answer = kernel_worker.call(Message(body))
        assert not isinstance(answer, Failure), answer.message
        assert answer.body["found"] is None, answer.body["found"]

    return run
