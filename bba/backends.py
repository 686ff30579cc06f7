"""What a model runs on: torch, or onnxruntime, with weights in float32 or int8. What was made for that is kept."""

import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from bba.errors import BudgetError
from bba.model import SequenceClassifier, Setting
from bba.model.inference import in_batches
from bba.model.packed import PackedClassifier
from bba.pruning.cost import block_share, head_share
from bba.pruning.plan import Plan, everything
from bba.pruning.surgery import prune

if TYPE_CHECKING:
    from bba.onnx_model import OnnxModel

TORCH, ONNX, INT8 = "torch", "onnx", "onnx-int8"
BACKENDS = (TORCH, ONNX, INT8)
NAMES = {TORCH: "torch", ONNX: "ONNX", INT8: "ONNX int8"}
"""Backends as they are called in sentences."""
MAX_BYTES = 384 * 2**20
"""Weights of pruned models and graphs that a process keeps for the next call, over all checkpoints."""


def check_backend(backend: str) -> str:
    """Return the name of a backend as it is.

    Raises:
        BudgetError: there is none of this name.
    """
    if backend not in BACKENDS:
        raise BudgetError(f"There is no backend {backend!r}: choose {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}.")
    return backend


class Runner(Protocol):
    """A model that runs on some backend."""

    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits of one batch of token ids, shape (B, T), as a tensor of shape (B, labels)."""

    def logits_of(self, rows: Sequence[Sequence[int]], batch_size: int = 64) -> Tensor:
        """Return the logits of token lists in their own order, shape (len(rows), labels)."""


class TorchRunner:
    """A model in torch; it uses as many threads as torch is set to.

    Args:
        model: its weights stay where they are.
    """

    def __init__(self, model: SequenceClassifier) -> None:
        self.model = model
        self.packed = PackedClassifier(model)

    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits of one batch; see `Runner`."""
        return self.packed(input_ids, attention_mask)

    def logits_of(self, rows: Sequence[Sequence[int]], batch_size: int = 64) -> Tensor:
        """Return the logits of token lists; see `Runner`."""
        config = self.model.config
        return in_batches(self.packed, rows, config.pad_token_id, len(config.labels), batch_size)


def onnx_of(model: SequenceClassifier, backend: str, threads: int) -> "OnnxModel":
    """Return a pruned model as a graph that is ready to run, with no file left behind.

    Args:
        model: what to make a graph of.
        backend: `onnx` or `onnx-int8`.
        threads: how many threads a call may use.
    """
    from bba.onnx_graph import card_of, write_onnx  # Seconds that only those pay who run a graph.
    from bba.onnx_model import OnnxModel

    has = Setting(head_share(model.config), block_share(model.config))
    with tempfile.TemporaryDirectory(prefix="bba-") as folder:
        path = Path(folder) / "model.onnx"
        write_onnx(model, card_of(model, "", has, int8=backend == INT8), path)
        return OnnxModel(path, threads)


_Key = tuple[Plan, str, int]
"""What is kept of a model, the backend, and threads of a call."""


class _Order:
    """In which order what is kept was last used, and how large it is, over all models of a process."""

    def __init__(self) -> None:
        self.sizes: OrderedDict[tuple[weakref.ref[Variants], _Key], int] = OrderedDict()
        self.lock = threading.Lock()  # The app's visitors share what is kept.
        self.making = {backend: threading.Lock() for backend in BACKENDS}  # Or many would make the same graph at once.

    def used(self, owner: "Variants", key: _Key) -> None:
        """Remember that a value was used just now, if it is still kept."""
        with self.lock:
            if key in owner.made:
                self.sizes.move_to_end((weakref.ref(owner), key))

    def add(self, owner: "Variants", key: _Key, value: Any, size: int) -> None:
        """Keep a value of so many bytes; beyond `MAX_BYTES` drop others, but not this one, which is in use."""
        with self.lock:
            owner.made[key] = value
            self.sizes[weakref.ref(owner), key] = size
            for known, dropped in list(self.sizes):
                left = known()
                if left is None:  # Its values went with it.
                    del self.sizes[known, dropped]
                elif len(self.sizes) > 1 and sum(self.sizes.values()) > MAX_BYTES:
                    del self.sizes[known, dropped]
                    del left.made[dropped]


class Variants:
    """What is made of one model: pruned to a plan, in torch or as a graph. The last ones used are kept.

    The bound, `MAX_BYTES`, is on all of a process together: an app has many checkpoints, and one memory. What is kept
    goes when this object goes.

    Args:
        model: in evaluation mode; it stays as it is.
    """

    def __init__(self, model: SequenceClassifier) -> None:
        self.model = model
        self.whole = TorchRunner(model)
        self.made: dict[_Key, Any] = {}
        """Runners of pruned models, in torch and as graphs."""

    def __reduce__(self) -> tuple[type["Variants"], tuple[SequenceClassifier]]:
        """Let another process, which gets a copy, make what it needs: graphs cannot be copied."""
        return Variants, (self.model,)

    def pruned(self, plan: Plan) -> SequenceClassifier:
        """Return the model pruned to a plan; it shares memory with others: do not change it."""
        return self._torch(plan).model

    def _torch(self, plan: Plan) -> TorchRunner:
        if plan == everything(self.model.config):
            return self.whole

        def make() -> tuple[TorchRunner, int]:
            pruned = prune(self.model, plan, share=True).eval()
            return TorchRunner(pruned), _own_bytes(pruned, self.model)

        return self._kept((plan, TORCH, 0), make)

    def running(self, plan: Plan, backend: str = TORCH, threads: int | None = None) -> Runner:
        """Return the model pruned to a plan, ready to run on a backend.

        Args:
            plan: what to keep.
            backend: one of `BACKENDS`.
            threads: threads of a call in onnxruntime; None takes as many as torch is set to, which is what torch uses.

        Raises:
            BudgetError: there is no such backend.
        """
        if check_backend(backend) == TORCH:
            return self._torch(plan)
        threads = threads or torch.get_num_threads()

        def make() -> tuple[Runner, int]:
            graph = onnx_of(self.pruned(plan), backend, threads)
            return graph, graph.bytes

        return self._kept((plan, backend, threads), make)

    def _kept(self, key: _Key, make: Callable[[], tuple[Any, int]]) -> Any:
        """Return what is kept under a key; make it if it is not there, with its size, one at a time on a backend."""
        value = self.made.get(key)
        if value is None:
            with _order.making[key[1]]:
                value = self.made.get(key)  # Another visitor may have made it while this one waited.
                if value is None:
                    value, size = make()
                    _order.add(self, key, value, size)
        _order.used(self, key)
        return value


_order = _Order()


def _own_bytes(pruned: SequenceClassifier, model: SequenceClassifier) -> int:
    """Return the size of the weights that a pruned model does not share with the one it was pruned from."""
    shared = {weight.data_ptr() for weight in model.parameters()}
    return sum(weight.nbytes for weight in pruned.parameters() if weight.data_ptr() not in shared)
