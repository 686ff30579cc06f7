"""Your data in plain words: the stages of a training, where it starts from, and how long things take."""

from bba.settings import WORD

BACKBONES = {WORD: "From scratch", "mini": "Small pretrained", "minilm": "Pretrained MiniLM"}
"""What a model knows before it sees the file, in two words."""
ABOUT_BACKBONES = {
    WORD: "Learns the words of your file and nothing else. Quick, in any language; needs more examples.",
    "mini": "Has read English before. A little slower; better with few examples.",
    "minilm": "Has read much English before. The slowest, and the best with few examples.",
}
STAGES = {
    "start": "Getting ready: reading the file, making the model",
    "dense": "Stage 1 of 3: learning with all heads",
    "soft": "Stage 2 of 3: learning to live with fewer heads",
    "hard": "Stage 3 of 3: getting used to heads that are really gone",
    "measuring": "Measuring accuracy and latency at every budget",
}
SPLITS = {"train": "learn from", "validation": "choose by", "test": "measure the accuracy on, once, at the end"}
"""What each part of a file's rows is for."""


def duration(seconds: float) -> str:
    """Return a time to the nearest 5 seconds below two minutes, then to the minute."""
    if seconds < 120:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
