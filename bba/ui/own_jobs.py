"""Your data, third part: the visitor's own trainings, how far they are, and what can be done with them."""

import streamlit as st

from bba import jobs
from bba.jobs import Job, State
from bba.ui import own_result, state, visitor
from bba.ui.own_words import STAGES, duration
from bba.ui.wording import count, percent, plain

SECONDS_BETWEEN = 2


def show() -> None:
    """Show the visitor's trainings, one of them with all that is known of it, and that somebody else's is running."""
    found = {job.name: job for job in jobs.jobs_in(state.checkpoints_root()) if job.owner == visitor.key()}
    running = jobs.running()
    if running is not None and running.owner != visitor.key():
        left = duration(jobs.state(running).seconds_left)
        st.info(
            f"Somebody else's training is running, and this server does one at a time. It ends in about {left}; you "
            "can prepare yours meanwhile.",
            icon=":material/hourglass_top:",
        )
    if not found:
        return
    visitor.keep()
    wanted = st.session_state.pop("own_job_next", None)
    if wanted in found:
        st.session_state["own_job"] = wanted
    elif st.session_state.get("own_job") not in found:
        st.session_state.pop("own_job", None)
    st.subheader("Your trainings", help="This browser is shown its own only. Other visitors cannot see or stop them.")
    name = st.selectbox("Training", list(found), key="own_job") if len(found) > 1 else next(iter(found))
    _one(found[name])


def _one(job: Job) -> None:
    now = jobs.state(job)
    with st.container(border=True, key="own_job_panel"):
        if now.status == "running":
            st.fragment(_watch, run_every=SECONDS_BETWEEN)(job)
        elif now.status == "finished":
            own_result.show(job)
        else:
            _ended(job, now)


def _watch(job: Job) -> None:
    """Show a running job; drawn anew every two seconds, until it has ended."""
    now = jobs.state(job)
    if now.status != "running":
        st.rerun()
    st.markdown(f"**{plain(job.name)}** is being trained on {plain(job.file)}. You can close this page and come back.")
    st.progress(min(now.share, 1.0), f"{STAGES[now.stage]}, {now.share:.0%}")
    _figures(now)
    if st.button("Stop", key="own_stop", icon=":material/stop:", help="It can go on later from where it was."):
        with st.spinner("Stopping…"):
            jobs.stop(job)
        st.rerun()


def _figures(now: State) -> None:
    steps, loss, accuracy, left = st.columns(4)
    progress = now.progress
    none = "-"
    steps.metric("Step", f"{count(progress.step)} of {count(progress.steps)}" if progress else none)
    loss.metric(
        "Loss", f"{progress.loss:.3f}" if progress and progress.loss is not None else none,
        help="How wrong the model is on what it learns from; it should fall.",
    )  # fmt: skip
    accuracy.metric(
        "Accuracy so far", percent(progress.accuracy) if progress and progress.accuracy is not None else none,
        help="On the validation texts, with all heads; measured now and then in stage 1.",
    )  # fmt: skip
    left.metric("Time left, about", duration(now.seconds_left))


def _ended(job: Job, now: State) -> None:
    if now.status == "stopped":
        st.info(
            f"The training of {plain(job.name)} was stopped at {now.share:.0%}. It can go on from where it last saved.",
            icon=":material/pause:",
        )
    else:
        st.error(f"The training of {plain(job.name)} has ended too early. {plain(now.problem or '')}")
    with st.container(horizontal=True):
        if st.button("Resume", key="own_resume", type="primary", icon=":material/play_arrow:"):
            jobs.resume(job)
            st.rerun()
        if st.button("Discard", key="own_discard", icon=":material/delete:", help="Removes all that it has trained."):
            jobs.discard(job)
            st.rerun()
