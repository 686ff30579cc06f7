"""How quick the app is, as a visitor sees it in a browser.

Measured are the time from letting go of the slider to the changed head map, and from Ctrl+Enter to the answer. It
starts the server on a free port and ends it. Needs `playwright` and a Chromium; run it from the repository's root:

    python -m benchmarks.app_latency [--moves 40] [--texts 20] [--browser /usr/bin/chromium]
"""

import argparse
import os
import random
import statistics

from playwright.sync_api import Page, sync_playwright

from bba.measure.latency import cpu_name
from benchmarks.app_server import server

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000

WATCH = """
() => {
  const map = () => document.querySelector('.st-key-head_map .gtitle')?.textContent;
  const answer = () => document.querySelector('.st-key-prediction')?.textContent.includes('probability');
  const watch = window.watch = {start: null, took: null, changed: null};
  const start = changed => { Object.assign(watch, {start: performance.now(), took: null, changed}); };
  const moved = () => { const before = map(); start(() => map() && map() !== before); };
  document.addEventListener('keydown', event => {
    if (event.key.startsWith('Arrow')) moved();
    if (event.key === 'Enter' && event.ctrlKey) start(answer);
  }, true);
  document.addEventListener('pointerup', moved, true);
  new MutationObserver(() => {
    if (watch.start !== null && watch.took === null && watch.changed()) watch.took = performance.now() - watch.start;
  }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
}
"""


def _took(page: Page) -> float:
    page.wait_for_function("() => window.watch.took !== null", timeout=WAIT_MS)
    return float(page.evaluate("() => window.watch.took"))


def by_keyboard(page: Page, moves: int) -> list[float]:
    """Move the slider a stop at a time, up and down; return milliseconds from key press to the changed map."""
    slider = page.locator(".st-key-budget input[type=range]")
    times = []
    for move in range(moves):
        slider.focus()
        page.keyboard.press("ArrowLeft" if move // 8 % 2 == 0 else "ArrowRight")
        times.append(_took(page))
        page.wait_for_timeout(random.Random(move).randint(100, 900))  # Often while figures are being measured.
    return times


def by_mouse(page: Page, moves: int) -> list[float]:
    """Drag the slider to and fro; return milliseconds from release to the changed map."""
    thumb = page.locator(".st-key-budget [data-testid=stSliderThumbValue]").locator("xpath=..")
    track = (
        page.locator(".st-key-budget [data-testid=stSlider]").or_(page.locator(".st-key-budget")).first.bounding_box()
    )
    times = []
    for move in range(moves):
        box = thumb.bounding_box()
        if box is None or track is None:
            raise RuntimeError("the slider is not on the page")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        share = 0.15 + 0.7 * (move % 2) + random.Random(move).uniform(-0.1, 0.1)
        page.mouse.move(track["x"] + share * track["width"], box["y"] + box["height"] / 2, steps=8)
        page.mouse.up()
        times.append(_took(page))
        page.wait_for_timeout(random.Random(move).randint(100, 900))
    return times


def classify(page: Page, texts: int) -> list[float]:
    """Classify texts of 64 tokens; return milliseconds from Ctrl+Enter to the answer."""
    box = page.locator(".st-key-text_classify textarea")
    words = box.input_value().split()
    times = []
    for number in range(texts):
        box.fill("")
        box.press("Control+Enter")
        page.get_by_text("Nothing to classify yet").wait_for(timeout=WAIT_MS)
        box.fill(" ".join(words[(number + place) % len(words)] for place in range(62)))
        box.press("Control+Enter")
        times.append(_took(page))
        page.wait_for_timeout(400)
    return times


def run(address: str, browser: str, moves: int, texts: int) -> dict[str, list[float]]:
    """Open the pages in a browser and return the times, in milliseconds."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address, timeout=WAIT_MS)
        page.locator(".st-key-head_map .gtitle").wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(3000)
        page.evaluate(WATCH)
        times = {"slider, keyboard": by_keyboard(page, moves), "slider, mouse": by_mouse(page, moves // 2)}
        page.goto(f"{address}/classify", timeout=WAIT_MS)
        page.locator(".st-key-prediction .plot-container").first.wait_for(timeout=WAIT_MS)
        page.evaluate(WATCH)
        times["classify, 64 tokens"] = classify(page, texts)
        chromium.close()
    return times


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    with server() as (address, _):
        times = run(address, arguments.browser, arguments.moves, arguments.texts)
    print(f"{cpu_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; milliseconds as seen in the browser")
    print(f"{'':22}{'p50':>8}{'p95':>8}{'n':>6}")
    for name, values in times.items():
        p95 = statistics.quantiles(values, n=20, method="inclusive")[-1]
        print(f"{name:22}{statistics.median(values):8.0f}{p95:8.0f}{len(values):6}")


if __name__ == "__main__":
    main()
