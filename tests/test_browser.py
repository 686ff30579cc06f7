"""The app as a visitor meets it: a real server, a real browser. Skipped where there is no Playwright or no Chromium."""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from test_methods import made_up

from bba.measure.results import write_results

ROOT = Path(__file__).parents[1]
SCREENSHOTS = ROOT / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REQUIRED = bool(os.environ.get("BBA_BROWSER_REQUIRED"))
SECONDS = 1_000  # Playwright counts milliseconds.
PAGES = {
    "/": ".st-key-head_map .js-plotly-plot",
    "/classify": ".st-key-prediction .js-plotly-plot",
    "/inputs?checkpoint=dbpedia14-mini": ".st-key-way .js-plotly-plot",
    "/files": "[data-testid=stFileUploaderDropzone]",
    "/latency": ".js-plotly-plot",
    "/methods": ".st-key-methods_chart .js-plotly-plot",
    "/lesson": ".st-key-hand_in",
    "/your_data": "[data-testid=stFileUploaderDropzone]",
}
"""Every page, and what is on it once it is drawn."""
HEADLINE = "Champions League final goes to penalties after a late equaliser"

try:
    from accessibility import faults
    from playwright.sync_api import expect, sync_playwright

    from benchmarks.app_latency import FLAGS
    from benchmarks.app_server import server
except ImportError:
    if REQUIRED:
        raise
    pytest.skip("Playwright is not installed", allow_module_level=True)
if CHROMIUM is None and not REQUIRED:
    pytest.skip("there is no Chromium", allow_module_level=True)

pytestmark = pytest.mark.browser
expect.set_options(timeout=30 * SECONDS)  # The machine may be busy.


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Start the app as the README does, with a made-up comparison of methods, and return its address."""
    folder = tmp_path_factory.mktemp("results")
    write_results(folder / "news.csv", made_up())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BBA_RESULTS", str(folder))
        with server() as (address, _):
            yield address


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(app, chromium):
    """Return a function that opens a page in a browser of its own; at the end all consoles must be clean."""
    complaints = []
    contexts = []

    def visit(path="/", width=1440, height=1000, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30 * SECONDS)
        page.on("console", lambda message: complaints.extend(complaint(message)))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(app + path)
        settled(page)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def complaint(message):
    """Return a message that is ours; on a deep link Streamlit itself tries where its server is, and meets 404."""
    ours = "/_stcore/" not in message.location.get("url", "")
    return [f"{message.type}: {message.text}"] if ours and message.type in ("error", "warning") else []


def settled(page):
    """Wait until the app has drawn the page and is not running."""
    expect(page.locator(".stApp[data-test-script-state='notRunning']")).to_be_visible(timeout=60 * SECONDS)
    expect(page.locator("[data-stale='true']")).to_have_count(0)


def slider(page):
    return page.locator(".st-key-budget").get_by_role("slider")


def press(page, key):
    slider(page).focus()
    slider(page).press(key)


def figures(page):
    return page.locator(".st-key-figures").inner_text()


def answer(page):
    """Return the label and the sentence with its probability."""
    return page.locator(".st-key-prediction").inner_text().split("\n\n")[:2]


def head_map(page):
    return page.locator(".st-key-head_map")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_every_page_draws_and_fits_and_is_accessible(visit, path, scheme):
    page = visit(path, scheme=scheme)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    expect(page.get_by_text("Traceback")).to_have_count(0)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        SCREENSHOTS.mkdir(exist_ok=True)
        name = re.sub(r"\?.*", "", path).strip("/") or "budget"
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
        assert faults(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_inputs_page_sends_a_text_up_by_keyboard(visit, width, scheme):
    page = visit("/inputs?checkpoint=dbpedia14-mini", width=width, scheme=scheme)
    dial, way = page.locator(".st-key-mean_cost").get_by_role("slider"), page.locator(".st-key-way")
    expect(way).to_contain_text("It stayed at budget 0.25:0.25 (4 heads, 16 blocks)")
    dial.focus()
    dial.press("Home")
    expect(way).to_contain_text("It stayed at budget 0.1:0.1 (1 head, 6 blocks)")
    expect(page).to_have_url(re.compile("mean_cost="))
    settled(page)
    assert head_map(page).is_visible()
    expect(page.get_by_text("Traceback")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=SCREENSHOTS / f"inputs-{width}-{scheme}.png", full_page=True)


def test_the_slider_closes_heads_and_moves_the_figures(visit):
    page = visit()
    expect(head_map(page)).to_contain_text("Budget 0.5:")
    before = figures(page)
    press(page, "ArrowLeft")
    expect(head_map(page)).to_contain_text("Budget 0.45:")
    settled(page)
    assert figures(page) != before
    assert "14 of 32 heads" in figures(page)
    assert re.search(r"\d ms", figures(page))
    assert "live" in figures(page)
    expect(page).to_have_url(re.compile(r"budget=0\.45"))


def test_a_pasted_text_is_classified(visit):
    page = visit("/classify?checkpoint=agnews-word")
    box = page.get_by_role("textbox", name="Text to classify")
    box.fill(HEADLINE)
    box.press("Control+Enter")
    expect(page.locator(".st-key-prediction")).to_contain_text("Sports")


def test_a_text_is_shown_as_it_was_typed(visit):
    page = visit("/classify?checkpoint=agnews-word")
    box = page.get_by_role("textbox", name="Text to classify")
    box.fill("<script>document.title = 'taken'</script> **bold** $x^2$ :red[no]")
    box.press("Control+Enter")
    settled(page)
    expect(page.locator(".st-key-prediction")).to_contain_text("probability")
    assert page.title() != "taken"


def test_latency_is_measured_and_can_be_taken_away(visit):
    page = visit("/latency")
    page.get_by_role("button", name="Measure now").click()
    expect(page.get_by_text("Measured live on this machine")).to_be_visible(timeout=120 * SECONDS)
    settled(page)
    with page.expect_download() as download:
        page.locator(".st-key-speedup_csv button").first.click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert "speedup" in lines[0]
    assert len(lines) >= 5


def test_a_link_shows_the_same_in_another_browser(visit):
    first = visit("/classify?checkpoint=agnews-word")
    box = first.get_by_role("textbox", name="Text to classify")
    box.fill(HEADLINE)
    box.press("Control+Enter")
    expect(first.locator(".st-key-prediction")).to_contain_text("Sports")
    press(first, "ArrowLeft")
    expect(first.locator(".st-key-prediction")).to_contain_text("budget 0.45")
    expect(first).to_have_url(re.compile("text="))
    second = visit(first.url.removeprefix(first.url.split("/classify")[0]))
    expect(second.get_by_role("textbox", name="Text to classify")).to_have_value(HEADLINE)
    expect(second.locator(".st-key-prediction")).to_contain_text("budget 0.45")
    assert answer(second) == answer(first)


def test_settings_survive_a_change_of_page(visit):
    page = visit(f"/?checkpoint=agnews-word&budget=0.25&text={quote(HEADLINE)}")
    page.get_by_role("link", name="Classify").click()
    expect(page.get_by_role("textbox", name="Text to classify")).to_have_value(HEADLINE)
    expect(page.locator(".st-key-prediction")).to_contain_text("budget 0.25")


def test_two_settings_are_compared_by_keyboard_alone_and_a_link_shows_both(visit):
    page = visit("/?checkpoint=synthetic")
    page.get_by_role("switch", name="Compare").or_(page.get_by_role("checkbox", name="Compare")).first.focus()
    page.keyboard.press("Space")
    other = page.locator(".st-key-budget_b").get_by_role("slider")
    other.focus()
    other.press("ArrowLeft")
    expect(page.get_by_text("B: budget 0.2", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("compare=true"))
    expect(page).to_have_url(re.compile(r"budget_b=0\.2"))
    expect(page.locator(".st-key-compared")).to_contain_text(re.compile("times as fast as|No difference"))
    second = visit("/?" + page.url.partition("?")[2], width=390)
    expect(second.get_by_text("B: budget 0.2", exact=True)).to_be_visible()
    assert second.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_words_a_head_looks_at_are_shown_as_they_were_typed(visit):
    page = visit(f"/classify?checkpoint=agnews-word&text={quote('<b>Final</b> goes to <i>penalties</i>')}")
    words = page.locator(".st-key-attention_words")
    expect(words).to_contain_text("[CLS]")
    assert words.locator("b, i").count() == 0
    assert words.locator("span[title]").count() >= 5


def test_a_latency_target_is_answered_from_a_measurement(visit):
    page = visit("/latency?checkpoint=synthetic")
    box = page.get_by_role("textbox", name="Latency target")
    box.fill("soon")
    box.press("Enter")
    expect(page.get_by_text("give a time above 0")).to_be_visible()
    box.fill("0,5 s")
    box.press("Enter")
    page.get_by_role("button", name="Find the best setting").click()
    result = page.locator(".st-key-target_result")
    expect(result).to_contain_text("validation texts", timeout=120 * SECONDS)
    box.fill("0.001 ms")
    box.press("Enter")
    expect(result).to_contain_text("is not reachable")


@pytest.mark.parametrize("width", [1440, 390])
def test_methods_are_filtered_by_keyboard_and_a_link_shows_the_same(visit, width):
    page = visit("/methods", width=width)
    chart = page.locator(".st-key-methods_chart")
    legend = chart.locator(".legendtext")
    expect(legend.filter(has_text=re.compile("^random$"))).to_be_visible()
    page.get_by_role("switch", name="Only unbeaten").or_(page.get_by_role("checkbox", name="Only unbeaten")).focus()
    page.keyboard.press("Space")
    expect(legend.filter(has_text=re.compile("^random$"))).to_have_count(0)
    page.get_by_role("radio", name="encoder cost").or_(page.get_by_role("button", name="encoder cost")).first.click()
    expect(chart).to_contain_text("encoder cost (share of dense FLOPs)")
    expect(page).to_have_url(re.compile("unbeaten=true"))
    expect(page).to_have_url(re.compile(r"axis=encoder(\+|%20)cost"))
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    with page.expect_download() as download:
        page.locator(".st-key-methods_csv button:visible").click()  # Streamlit hides one, by width.
    assert "difference" in Path(download.value.path()).read_text(encoding="utf-8").splitlines()[0]
    second = visit("/methods?" + page.url.partition("?")[2], width=width, scheme="dark")
    expect(second.locator(".st-key-methods_chart")).to_contain_text("encoder cost (share of dense FLOPs)")
    expect(second.locator(".st-key-methods_chart .legendtext").filter(has_text="random")).to_have_count(0)
    SCREENSHOTS.mkdir(exist_ok=True)
    second.screenshot(path=SCREENSHOTS / f"methods-{width}-dark.png", full_page=True)
