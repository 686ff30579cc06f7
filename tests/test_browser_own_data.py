"""A visitor's own file in a real browser: upload, check, train in the background, result. Skipped without a browser."""

import csv
import os

import pytest
from test_browser import SCREENSHOTS, SECONDS, chromium, expect, server, settled, visit

__all__ = ["chromium", "visit"]
pytestmark = pytest.mark.browser

LABELS = {"good": "The room was clean and the staff kind, visit", "bad": "Nobody answered and the food was cold, visit"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def app(root, tmp_path_factory):
    """Start the app with an empty folder of checkpoints, clear of trainings that other programs run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BBA_CHECKPOINTS", str(root))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("place")))
        with server() as (address, _):
            yield address


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(f"{text} {number}", label) for number in range(30) for label, text in LABELS.items()]
        csv.writer(file, delimiter=";").writerows([("review", "verdict"), *rows])
    return path


@pytest.mark.skipif("BBA_BROWSER_REQUIRED" not in os.environ, reason="trains for a minute")
def test_a_file_becomes_a_model_in_the_app(visit, reviews, root):
    page = visit("/your_data")
    page.locator("input[type=file]").set_input_files(reviews)
    expect(page.get_by_text("columns separated by semicolon")).to_be_visible()
    minutes = page.locator(".st-key-own_minutes").get_by_role("slider")
    minutes.focus()
    minutes.press("Home")
    page.get_by_role("button", name="Work out the time").click()
    expect(page.get_by_text("Expected time")).to_be_visible(timeout=240 * SECONDS)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.get_by_text("is being trained on")).to_be_visible()
    second = visit("/your_data", width=390, scheme="dark")
    expect(second.get_by_text("Somebody else's training is running")).to_be_visible()
    expect(second.get_by_text("is being trained on")).to_have_count(0)
    assert second.evaluate("document.documentElement.scrollWidth") <= 390
    context = page.context
    page.close()
    page = context.new_page()
    page.goto(second.url)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("test texts that it never saw")).to_be_visible(timeout=600 * SECONDS)
    settled(page)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "your-data-1440-light.png", full_page=True)
    with page.expect_download() as download:
        page.locator(".st-key-own_zip button").first.click()
    assert download.value.suggested_filename == "reviews-0.5.zip"
    page.get_by_role("button", name="Use it in the app").click()
    expect(page.locator(".st-key-head_map")).to_be_visible()
    assert (root / "reviews" / "report.json").is_file()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_broken_file_gets_one_sentence(visit, tmp_path, width, scheme):
    (tmp_path / "photo.csv").write_bytes(b"\x89PNG\r\n" + bytes(range(256)) * 9)
    page = visit("/your_data", width=width, scheme=scheme)
    page.locator("input[type=file]").set_input_files(tmp_path / "photo.csv")
    expect(page.get_by_text("photo.csv is not a text file that can be read")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
