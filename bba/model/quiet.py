"""Loading and saving without a show: transformers draws bars and prints tables, and its hub client tells each try."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing bars and tables, and its hub client from reporting every failed try."""
    hub_verbosity = hub_logging.get_verbosity()
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    hub_logging.set_verbosity_error()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        hub_logging.set_verbosity(hub_verbosity)
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
