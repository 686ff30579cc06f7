"""The lesson in a real browser: a walk by keyboard, links, two visitors of one training. Skipped without a browser."""

import re

import pytest
from test_browser import SCREENSHOTS, SECONDS, chromium, expect, faults, server, settled, visit
from test_methods import row

from bba.measure.results import OURS, write_results
from bba.ui.lesson.page import STEPS

__all__ = ["chromium", "visit"]
pytestmark = pytest.mark.browser

TOLD = re.compile("You guessed|you guessed right")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Start the app with a made-up comparison on the teaching task, clear of measurements that other programs take."""
    folder = tmp_path_factory.mktemp("results")
    rows = [row(method, budget, seed) for method in (OURS, "static") for budget in (0.25, 0.5) for seed in range(2)]
    write_results(folder / "synthetic.csv", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BBA_RESULTS", str(folder))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("place")))
        with server() as (address, _):
            yield address


def heading(page, number):
    return page.get_by_role("heading", name=STEPS[number - 1].title)


def press(page, name, key="Enter"):
    button = page.get_by_role("button", name=name, exact=True)
    button.focus()
    button.press(key)


def guess(page, number):
    """Guess by keyboard: the first option, or what the slider stands at."""
    question = page.locator(f".st-key-guess_{number}")
    radio = question.get_by_role("radio")
    expect(radio.or_(question.get_by_role("slider")).first).to_be_attached()
    if radio.count():
        radio.first.focus()
        radio.first.press("Space")
    press(page, "That is my guess")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_lesson_is_walked_by_keyboard_and_every_step_fits(visit, width, scheme):
    page = visit("/lesson", width=width, scheme=scheme)
    SCREENSHOTS.mkdir(exist_ok=True)
    for number in range(1, len(STEPS) + 1):
        expect(heading(page, number)).to_be_visible()
        settled(page)
        expect(page.get_by_text(TOLD)).to_have_count(0)
        guess(page, number)
        expect(page.get_by_text(TOLD)).to_be_visible(timeout=120 * SECONDS)
        settled(page)
        expect(page.get_by_text("Traceback")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=SCREENSHOTS / f"lesson-{number}-{width}-{scheme}.png", full_page=True)
        assert faults(page) == []
        if number < len(STEPS):
            press(page, "Next")
    expect(page.get_by_role("button", name="Next", exact=True)).to_be_disabled()


def test_a_teacher_hides_the_answers_and_a_link_shows_the_same(visit):
    teacher = visit("/lesson?step=2&answers=hidden")
    guess(teacher, 2)
    expect(teacher.get_by_text("The answers are hidden for now")).to_be_visible()
    expect(teacher).to_have_url(re.compile("guess=50"))
    student = visit("/lesson?" + teacher.url.partition("?")[2], width=390)
    expect(heading(student, 2)).to_be_visible()
    expect(student.get_by_text("The answers are hidden for now")).to_be_visible()
    expect(student.get_by_text(TOLD)).to_have_count(0)
    teacher.get_by_role("switch", name="Hide answers").or_(
        teacher.get_by_role("checkbox", name="Hide answers")
    ).first.focus()
    teacher.keyboard.press("Space")
    expect(teacher.get_by_text(TOLD)).to_be_visible()
    expect(teacher).not_to_have_url(re.compile("answers="))


def test_two_visitors_watch_one_training(visit):
    path = "/lesson?step=4&show=train+one+now"
    first, second = visit(path), visit(path, width=390, scheme="dark")
    press(first, "Train a small model")
    expect(second.get_by_text("Another visitor started this run")).to_be_visible(timeout=60 * SECONDS)
    for page in (first, second):
        expect(page.locator(".st-key-live_gates")).to_be_visible(timeout=240 * SECONDS)
        expect(page.locator(".st-key-live_accuracy")).to_be_visible()
    assert second.evaluate("document.documentElement.scrollWidth") <= 390
    expect(second.get_by_role("button", name="Stop")).to_have_count(0)
    press(first, "Stop")
    expect(first.get_by_text("Stopped. It reached step")).to_be_visible()
    expect(second.get_by_role("button", name="Train a small model")).to_be_visible(timeout=60 * SECONDS)
