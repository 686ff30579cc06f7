"""Your data, last part: what a finished training gives, and the model to take away."""

import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from bba.export import export
from bba.jobs import Job
from bba.model import Setting
from bba.ui import budget, state
from bba.ui.own_words import duration
from bba.ui.state import Choice
from bba.ui.wording import count, percent, plain


def show(job: Job) -> None:
    """Show a finished training: accuracy at every budget, and the downloads."""
    choice = state.choose(job.out)
    report = choice.report
    st.success(
        f"{plain(job.name)} is ready, trained on {plain(job.file)} in {duration(report.training_seconds)}. It is "
        "in the list of checkpoints now, for everybody who opens this app.",
        icon=":material/check:",
    )
    choice = choice.at(_setting(choice))
    row = choice.row
    st.markdown(
        f"At budget **{choice.setting}** ({row.heads} heads) it is right for **{percent(row.accuracy)}** of "
        f"{count(report.counts['test'])} test texts that it never saw; 95 % interval {percent(row.accuracy_low)} to "
        f"{percent(row.accuracy_high)}."
    )
    budget.accuracy_line(choice)
    with st.container(horizontal=True):
        if st.button("Use it in the app", key="own_use", type="primary", on_click=_pick, args=(job.name,)):
            st.switch_page("pages/explore/budget.py")
        _downloads(choice)


def _pick(name: str) -> None:
    st.session_state["checkpoint"] = name


def _setting(choice: Choice) -> Setting:
    """Ask at which measured budget to show the model and take it away."""
    options = {str(setting): setting for setting in choice.settings}  # A tuple would be read as a range.
    chosen = st.select_slider(
        "Budget", list(options), value=str(choice.setting), key=f"own_setting_{choice.folder.name}",
        help="The share of the attention heads that stay. A smaller model is quicker.",
    )  # fmt: skip
    return options[chosen]


def _downloads(choice: Choice) -> None:
    name = f"{choice.folder.name}-{str(choice.setting).replace(':', '-')}"
    st.download_button(
        f"Model at budget {choice.setting}", lambda: pruned_zip(choice), file_name=f"{name}.zip",
        mime="application/zip", key="own_zip", icon=":material/download:", on_click="ignore",
        help="A folder with weights, tokenizer, report and model card, pruned to this budget.",
    )  # fmt: skip
    st.download_button(
        f"ONNX at budget {choice.setting}", lambda: onnx_zip(choice), file_name=f"{name}-onnx.zip",
        mime="application/zip", key="own_onnx", icon=":material/download:", on_click="ignore",
        help="The same for onnxruntime, which needs no Python package of this project. Making it takes some seconds.",
    )  # fmt: skip


def pruned_zip(choice: Choice) -> bytes:
    """Return the checkpoint pruned to the choice's setting, as a zip of its folder."""
    smaller = choice.classifier.prune(*choice.setting)
    with tempfile.TemporaryDirectory(prefix="bba-zip-") as temporary:
        folder = Path(temporary) / smaller.name
        smaller.save_pretrained(folder)
        return _zipped(Path(temporary))


def onnx_zip(choice: Choice) -> bytes:
    """Return the model at the choice's setting as a zip of an ONNX file, checked against it, and its tokenizer."""
    with tempfile.TemporaryDirectory(prefix="bba-zip-") as temporary:
        export(choice.classifier, Path(temporary) / f"{choice.folder.name}.onnx", *choice.setting)
        return _zipped(Path(temporary))


def _zipped(folder: Path) -> bytes:
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder))
        file.seek(0)
        return file.read()
