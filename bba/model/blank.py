"""A model without weights, to be given weights that are there already: no memory, no random numbers, no wait."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bba.model.configuration import BBAConfig

_Model = TypeVar("_Model", bound=nn.Module)


class _Undrawn(TorchFunctionMode):
    """Leaves out the drawing of fresh weights: on the meta device it draws nothing, but imports torch's compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def blank(kind: Callable[[Any], _Model], config: BBAConfig) -> _Model:
    """Return a model on the meta device; `load_state_dict(weights, assign=True)` makes it a real one."""
    with torch.device("meta"), _Undrawn():
        return kind(config)
