"""What a fresh process imports before it answers: people wait for all of it."""

import os
import subprocess
import sys

PROGRAM = """
import sys
from bba.__main__ import main
assert main(sys.argv[1:]) == 0
print(*sys.modules)
"""
NOT_NEEDED = {
    *("accelerate", "datasets", "matplotlib", "onnx", "onnxruntime", "pandas", "plotly", "pyarrow", "scipy", "sklearn"),
    *("streamlit", "sympy", "torch._dynamo", "torch.distributed.tensor", "transformers.modeling_utils"),
}
"""What training, tables, charts or graphs take: most of it comes in with transformers' `PreTrainedModel`."""


def test_a_text_is_classified_with_nothing_imported_that_only_others_need(checkpoint_folder):
    command = [sys.executable, "-c", PROGRAM, "predict", checkpoint_folder, "--budget", "0.5", "--text", "tom:hat"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.stderr == ""
    imported = set(done.stdout.splitlines()[-1].split())
    assert "torch" in imported
    assert NOT_NEEDED.isdisjoint(imported), NOT_NEEDED & imported
