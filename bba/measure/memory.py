"""Memory: how much a computation takes at most, counted from torch's own allocations."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most bytes of CPU tensors that were alive at a time during a call, beyond those alive before it.

    It is a count of allocations, so the same on every machine and at every try; the allocator's own overhead and what
    libraries allocate by themselves are not in it.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most
