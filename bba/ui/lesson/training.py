"""The live training on the page: start it, watch it with everybody else, stop it."""

import pandas as pd
import streamlit as st

from bba.data import synthetic
from bba.training.live_run import FRESH, MODEL, LiveRun, View
from bba.ui import layout
from bba.ui.lesson import pictures

REFRESH_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""How often the page looks whether somebody else has started a run."""
STAGES = {
    "dense": "all heads on, no gates yet",
    "soft": "gates learn to close: each between 0 and 1",
    "hard": "gates are exactly open or closed",
}
ENDINGS = {
    "finished": "Finished.",
    "stopped": "Stopped.",
    "overdue": "Stopped, because it took too long: the machine is busy with other things. Try again later.",
    "failed": "The training broke off: start it again, or look at the server's log.",
}


@st.cache_resource(show_spinner=False)
def live_run() -> LiveRun:
    """Return the one training of this server, which all its visitors share."""
    return LiveRun()


def watch() -> None:
    """Show the run that goes on, or the last one; it looks again by itself."""
    running = live_run().view().running
    st.fragment(_watch, run_every=REFRESH_SECONDS if running else IDLE_SECONDS)(running)


def _watch(was_running: bool) -> None:
    view = live_run().view()
    if view.running != was_running:
        st.rerun()  # It began or ended: look again more often, or less.
    _button(view)
    _state(view)
    if view.sights:
        _pictures(view)


def _button(view: View) -> None:
    if not view.running:
        if st.button("Train a small model", type="primary", key="train", icon=":material/play_arrow:"):
            st.session_state["own_run"] = live_run().start() or st.session_state.get("own_run")
            st.rerun()
    elif st.session_state.get("own_run") == view.number:
        st.button("Stop", key="stop", icon=":material/stop:", on_click=live_run().stop)
    else:
        st.info("Another visitor started this run; you are watching it.", icon=":material/group:")


def _state(view: View) -> None:
    things = synthetic.THINGS[: synthetic.THINGS_PER_TEXT]
    if view.ending is None:
        st.caption(
            f"A model of {MODEL.layers} layers of {MODEL.heads} heads, from fresh weights, on texts that speak of "
            f"{len(things)} things only ({', '.join(things)}). It takes less than a minute on a quiet machine, and "
            "everybody on this server sees the same run."
        )
    elif view.running and not view.sights:
        st.progress(0.0, text="Starting: texts and a fresh model are made…")
    elif view.running:
        last = view.sights[-1]
        st.progress(last.step / last.steps, text=f"{last.stage}: {STAGES[last.stage]}")
    else:
        st.caption(ENDINGS[view.ending] + _reached(view))


def _reached(view: View) -> str:
    """Return how far a run came, or nothing if nothing was seen of it."""
    if not view.sights:
        return ""
    last = view.sights[-1]
    return f" It reached step {last.step} of {last.steps} after {last.seconds:.0f} seconds."


def _pictures(view: View) -> None:
    last = view.sights[-1]
    frame = pd.DataFrame(
        [(each.step, each.stage, each.loss, *each.accuracy) for each in view.sights],
        columns=["step", "stage", "loss", *(f"accuracy_{heads + 1}" for heads in range(len(last.accuracy)))],
    )
    gates = pd.DataFrame(last.gates).rename_axis("layer").reset_index()
    st.caption(f"How open each head is at half of the budget: 0 closed, 1 open. Accuracy: on {FRESH} fresh texts.")
    layout.chart(pictures.gate_map(last), gates, "live_gates", "How open each head is at half of the budget")
    left, right = st.columns(2)
    with left:
        layout.chart(pictures.loss_line(view.sights), frame, "live_loss", "Training loss over the steps")
    with right:
        chart = pictures.accuracy_now(last, len(synthetic.PEOPLE))
        layout.chart(chart, frame, "live_accuracy", "Accuracy with each number of heads open")
