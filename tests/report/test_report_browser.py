"""The report page in a real browser: nothing is loaded, nothing complains, and nothing sticks out of a narrow page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.cost_model.training import Score
from autotune.report.history import Difference, History
from autotune.report.page import Quality, render
from tests.report.report_pages import page

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e .[browser]")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDER_THAN_THE_PAGE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
RED_OF_INK_AND_PAPER = """() => {
  const style = getComputedStyle(document.body);
  return [style.color, style.backgroundColor].map(color => Number(color.match(/[0-9]+/)[0]));
}"""
LONG = "a" * 90


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)} on the PATH")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all its parts, and names that find no place to break."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    whole = page(
        title=LONG,
        facts=(("CPU", LONG),),
        notes=(f"`autotune tune {LONG}`",),
        command=f"autotune tune {LONG}.onnx",
        histories=tuple((History(LONG, ((1, 3e-3), (4, 2e-3)), 9, 2), 1e-3) for _ in range(3)),
        quality=Quality(LONG, (("cycles", 0.5), ("l1", 0.25)), (Score(LONG, 3, 0.5, 0.9, 1.0),)),
        differences=(Difference(LONG, 2e-3, None),),
        other=LONG,
    )
    path.write_text(render(whole))
    return path


@pytest.mark.parametrize("width", [400, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_has_nothing_to_complain_of(browser: Any, file: Path, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True)
    shown, told = context.new_page(), list[str]()
    shown.on("console", lambda message: told.append(message.text))
    shown.on("pageerror", lambda error: told.append(str(error)))
    shown.on("request", lambda request: told.append(request.url))
    shown.goto(file.as_uri())
    assert told == [file.as_uri()], "the page itself is all that is asked for"
    assert shown.evaluate(WIDER_THAN_THE_PAGE) <= 0
    ink, paper = shown.evaluate(RED_OF_INK_AND_PAPER)
    assert (paper < ink) == (scheme == "dark"), "light letters on dark paper, or the other way round"
    context.close()
