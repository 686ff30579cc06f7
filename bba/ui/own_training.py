"""Your data, second part: what to train, how long that takes on this machine, and the start."""

import importlib.util
import re
from pathlib import Path

import streamlit as st

from bba import jobs
from bba.data.tables import sample_rows
from bba.jobs import SOURCE, Request
from bba.model.backbones import MINI, MINILM_PACKAGE
from bba.settings import WORD, usual_settings
from bba.training.speed import Plan, Speed, spend
from bba.ui import state, visitor
from bba.ui.own_file import Checked
from bba.ui.own_words import ABOUT_BACKBONES, BACKBONES, duration
from bba.ui.wording import count

MINUTES = (1, 3, 5, 10, 30, 60)


def ask(checked: Checked) -> None:
    """Ask how to train, show how long it takes, and start when told to."""
    st.subheader("Train", help="The training runs in a process of its own: you can close this page and come back.")
    backbone = _backbone()
    minutes = st.select_slider(
        "Minutes to spend", MINUTES, value=3, key="own_minutes",
        help="The training is shortened to fit in. A small file may need less.",
    )  # fmt: skip
    key = (*checked.key, backbone)
    measured = st.session_state.get("own_speed", {})
    if key not in measured:
        st.caption("First a few steps are trained to see how quick this machine is; that takes some seconds.")
        if not st.button("Work out the time", key="own_time", icon=":material/timer:"):
            return
        measured = {**measured, key: _measure(checked, backbone)}
        st.session_state["own_speed"] = measured
        st.rerun()
    speed, splits = measured[key]
    plan = spend(minutes, speed, splits, usual_settings("", backbone)[1])
    _show(plan, splits, minutes)
    name = _name(checked.upload.name)
    st.caption(
        "Your file stays on the server until the training has ended or is discarded, and nobody else is shown it. The "
        "finished model is in the list of checkpoints, for everybody who opens this app."
    )
    if st.button("Train", type="primary", key="own_train", icon=":material/play_arrow:"):
        _start(checked, backbone, plan, name)


def _available() -> list[str]:
    found = {"mini": (SOURCE / MINI).is_dir(), "minilm": importlib.util.find_spec(MINILM_PACKAGE) is not None}
    return [WORD, *(name for name, there in found.items() if there)]


def _backbone() -> str:
    available = _available()
    if len(available) == 1:
        return available[0]
    backbone = st.segmented_control(
        "Start", available, default=available[1], required=True, format_func=BACKBONES.__getitem__, key="own_backbone",
        help="What the model knows before it sees your file.",
    )  # fmt: skip
    st.caption(ABOUT_BACKBONES[backbone])
    return backbone


def _measure(checked: Checked, backbone: str) -> tuple[Speed, dict[str, int]]:
    with st.status("Training a few steps to see how quick this machine is…") as status:
        place = st.empty()

        def waiting() -> None:
            place.caption("The model of these steps is thrown away.")  # Lets a click end the measurement.

        examples = checked.examples()
        measured = jobs.measured_speed(examples, backbone, waiting)
        status.update(label="Measured.", state="complete")
    return measured


def _show(plan: Plan, splits: dict[str, int], minutes: float) -> None:
    """Say how long it takes and what is done in that time."""
    st.markdown(f"Expected time: **{duration(plan.total)}**, measured on this machine just now.")
    passes = plan.training.batch_size / max(1, plan.rows * splits["train"] / sum(splits.values()))
    stages = ", ".join(f"{count(steps)} ({steps * passes:.1f} passes)" for steps in plan.steps.values())
    told = [f"Chosen: {stages} steps in the three stages, {plan.training.batch_size} texts a step."]
    if plan.rows < sum(splits.values()):
        told.append(f"Only {count(plan.rows)} of the {count(sum(splits.values()))} rows are used, drawn at random.")
    if plan.usual:
        told.append("That is all such a file needs; more minutes would not help.")
    elif plan.total > 60 * minutes * 1.1:
        told.append("The time asked for is too short for this machine; this is the least that makes sense.")
    else:
        told.append("With more minutes the accuracy may grow.")
    st.caption(" ".join(told))


def _name(file: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(file).stem).strip("-")[:36] or "mine"
    return st.text_input(
        "Name of the checkpoint", stem.lower(), key="own_name", max_chars=40,
        help="Letters, digits and dashes. The model is found under this name in the app.",
    )  # fmt: skip


def _start(checked: Checked, backbone: str, plan: Plan, name: str) -> None:
    root = state.checkpoints_root()
    jobs.check_name(root, name)
    examples = checked.examples()
    if plan.rows < len(examples):
        examples = sample_rows(examples, plan.rows, plan.training.seed)
    model = usual_settings("", backbone)[0]
    request = Request(name, checked.upload.name, backbone, model, plan.training, plan.seconds, visitor.key())
    job = jobs.start(root, request, examples)
    st.session_state["own_job_next"] = job.name
    st.rerun()
