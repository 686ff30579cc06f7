"""Many visitors of the app at once: whether each gets the answer of a single one, how soon, and what memory it takes.

    python -m benchmarks.load [--visitors 20] [--moves 10] [--minutes 10]

The app runs in a process of its own. Visitors speak to it as a browser does, over Streamlit's websocket, but draw
nothing, so that what is measured is the server and not the browsers beside it. One visitor first asks for every pair
of a text and a budget; then all of them, at once, change the text or move the slider on the Classify page, wait for
the answer, look at it for up to a second, and go on, in two waves. The time is that from a change to its answer. The
exit status is 1 if an answer was missing or another than the single visitor's, or if all was not over in time.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass, field

import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect

from bba.measure.latency import cpu_name
from benchmarks.app_server import START_SECONDS, server

TEXTS = (
    "Stocks fall as oil climbs past $50 a barrel",
    "The striker scored twice in extra time and the cup goes north",
    "A new chip doubles the speed of search on mobile phones",
    "Ministers met in Geneva to talk about the border",
    "Astronomers find water in the air of a distant planet",
)
WAVES = 2
ANSWER_SECONDS = 60
"""After so long without an answer, a visitor takes it for an error."""


class VisitError(Exception):
    """The app gave no answer."""


@dataclass
class Visitor:
    """A session of the Classify page."""

    socket: ClientConnection
    widgets: dict[str, str] = field(default_factory=dict)
    """Ids of the slider and the text box, by their keys."""
    stops: list[str] = field(default_factory=list)
    """Budgets of the slider."""
    answer: str = ""
    """What the page says now."""

    async def open(self) -> None:
        """Load the page."""
        await self._run(BackMsg(), START_SECONDS)

    async def ask(self, key: str, value: str) -> float:
        """Set the slider (`budget`) or the text (`text_classify`); return the seconds until the answer was there."""
        state = WidgetState(id=self.widgets[key])
        if key == "budget":
            state.string_array_value.data.append(value)
        else:
            state.string_value = value
        message = BackMsg()
        message.rerun_script.widget_states.widgets.append(state)
        return await self._run(message)

    async def _run(self, message: BackMsg, patience: float = ANSWER_SECONDS) -> float:
        message.rerun_script.page_name = "classify"
        self.answer, took, started = "", 0.0, time.perf_counter()
        await self.socket.send(message.SerializeToString())
        async with asyncio.timeout(patience):
            while True:
                reply = ForwardMsg()
                reply.ParseFromString(bytes(await self.socket.recv(decode=False)))
                if reply.WhichOneof("type") == "delta" and self._read(reply):
                    took = time.perf_counter() - started
                if reply.WhichOneof("type") == "script_finished":
                    break
        if not self.answer:
            raise VisitError("the page was drawn without an answer")
        return took

    def _read(self, reply: ForwardMsg) -> bool:
        """Take in one element of the page; return whether it is the answer."""
        element = reply.delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            raise VisitError(element.exception.message)
        if kind in ("slider", "text_area"):
            widget = getattr(element, kind)
            self.widgets[widget.id.rpartition("-")[2]] = widget.id
            if widget.id.endswith("-budget"):
                self.stops = list(widget.options)
        if kind == "markdown" and element.markdown.body.startswith("### ") and "probability" in element.markdown.body:
            self.answer = element.markdown.body
            return True
        return False


Answers = dict[tuple[str, str], str]
"""What the page says of a text at a budget."""


def _visit(address: str) -> connect:
    return connect(address.replace("http", "ws") + "/_stcore/stream", max_size=None, open_timeout=ANSWER_SECONDS)


async def alone(address: str) -> tuple[Answers, list[float]]:
    """Let one visitor ask for every text at every budget; return what it got and the seconds each took."""
    answers, took = {}, []
    async with _visit(address) as socket:
        visitor = Visitor(socket)
        await visitor.open()
        for text in TEXTS:
            await visitor.ask("text_classify", text)
            for stop in visitor.stops:
                took.append(await visitor.ask("budget", stop))
                answers[text, stop] = visitor.answer
    return answers, took


async def crowd(address: str, count: int, moves: int, expected: Answers) -> tuple[list[float], list[str]]:
    """Let many visitors in at once; return the seconds that each answer took, and what went wrong."""
    took: list[float] = []
    wrong: list[str] = []

    async def one(number: int) -> None:
        draw = random.Random(number)
        try:
            async with _visit(address) as socket:
                visitor = Visitor(socket)
                await visitor.open()
                text, stop = draw.choice(list(expected))
                await visitor.ask("text_classify", text)
                await visitor.ask("budget", stop)
                for move in range(moves):
                    if move % 2:
                        text = draw.choice(TEXTS)
                        took.append(await visitor.ask("text_classify", text))
                    else:
                        stop = draw.choice(visitor.stops)
                        took.append(await visitor.ask("budget", stop))
                    if visitor.answer != expected[text, stop]:
                        wrong.append(f"{text!r} at {stop}: {visitor.answer!r}, not {expected[text, stop]!r}")
                    await asyncio.sleep(draw.random())
        except (VisitError, TimeoutError, OSError) as error:
            wrong.append(f"visitor {number}: {type(error).__name__} {error}")

    await asyncio.gather(*(one(number) for number in range(count)))
    return took, wrong


def _line(name: str, took: list[float], megabytes: float) -> str:
    p95 = statistics.quantiles(took, n=20, method="inclusive")[-1] if len(took) > 1 else float("nan")
    middle = statistics.median(took) if took else float("nan")
    return f"{name:28}{middle * 1e3:8.0f}{p95 * 1e3:8.0f}{len(took):8}{megabytes:10.0f}"


async def run(address: str, process: psutil.Process, visitors: int, moves: int) -> list[str]:
    """Measure, print a table, and return what went wrong."""

    def megabytes() -> float:
        return process.memory_info().rss / 2**20

    print(
        f"{cpu_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; milliseconds from a change to its answer"
    )
    print(f"{'':28}{'p50':>8}{'p95':>8}{'answers':>8}{'MB after':>10}")
    expected, took = await alone(address)
    print(_line("1 visitor", took, megabytes()), flush=True)
    wrong = []
    for wave in range(1, WAVES + 1):
        took, failed = await crowd(address, visitors, moves, expected)
        wrong += failed
        print(_line(f"{visitors} visitors, wave {wave}", took, megabytes()), flush=True)
    return wrong


def main() -> None:
    """Start the app, let the visitors in, and say what they saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--moves", type=int, default=10, help="changes of each visitor in a wave")
    parser.add_argument("--minutes", type=float, default=10, help="after so long it is given up")
    given = parser.parse_args()
    with server() as (address, process):
        visits = run(address, psutil.Process(process), given.visitors, given.moves)
        try:
            wrong = asyncio.run(asyncio.wait_for(visits, given.minutes * 60))
        except TimeoutError:
            wrong = [f"not over after {given.minutes:g} minutes"]
    print(f"{len(wrong)} errors or other answers", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
