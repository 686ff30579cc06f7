"""Makes the pictures in README.md: `python -m docs.screenshots`, from the root, with `.[dev]`.

In docs/budget.gif both dials of the Budget page go down, one stop after the other, in a real browser; docs/lesson.png
is a step of the lesson. Nothing is measured meanwhile: the latencies seen are those in the checkpoint's report, so that
the pictures do not depend on what the machine does.
"""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

from bba.measure.latency import alone
from benchmarks.app_latency import FLAGS
from benchmarks.app_server import server

BUDGET, LESSON = (Path(__file__).with_name(name) for name in ("budget.gif", "lesson.png"))
FIRST = "/?checkpoint=agnews-minilm&budget=1&ffn=1"
STEP = "/lesson?step=4"
MOVES = [*(("budget", stop) for stop in ("0.75", "0.5", "0.25", "0.1")), *(("ffn", stop) for stop in ("0.5", "0.1"))]
"""Which dial is moved, and where it is then."""
SIZE = ViewportSize(width=1280, height=860)
COLOURS = 96
FRAME_MS, LAST_MS = 1_100, 2_600
WAIT_MS = 300_000
SETTLE_MS = 1_000
"""Bars grow and focus fades."""


def main() -> None:
    """Take the pictures and write them as one."""
    expect.set_options(timeout=WAIT_MS)
    with alone(), server() as (address, _), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = chromium.new_page(viewport=SIZE)
        page.set_default_timeout(WAIT_MS)
        page.goto(address + FIRST)
        frames = list(_frames(page))
        page.goto(address + STEP)
        expect(page.get_by_role("heading", level=2)).to_be_visible()
        expect(page.locator(".stSkeleton, [data-stale=true]")).to_have_count(0)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=LESSON)
        chromium.close()
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(BUDGET, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


def _frames(page: Page) -> Iterator[Image.Image]:
    stops = {"budget": "1", "ffn": "1"}
    yield _picture(page, stops)
    for dial, stop in MOVES:
        slider = page.locator(f".st-key-{dial}").get_by_role("slider")
        while slider.get_attribute("aria-valuetext") != stop:
            slider.press("ArrowLeft")
            page.wait_for_timeout(200)
        stops[dial] = stop
        yield _picture(page, stops)


def _picture(page: Page, stops: dict[str, str]) -> Image.Image:
    """Return the page once all of it shows these stops."""
    setting = stops["budget"] if stops["ffn"] == "1" else f"{stops['budget']}:{stops['ffn']}"
    expect(page.locator(".st-key-head_map")).to_contain_text(f"Budget {setting}:")
    expect(page.locator(".st-key-prediction")).to_contain_text(f"at budget {setting} (")
    expect(page.locator(".st-key-figures")).to_contain_text("stored")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(SETTLE_MS)
    return Image.open(io.BytesIO(page.screenshot())).quantize(COLOURS)


if __name__ == "__main__":
    main()
