"""How much memory loading a checkpoint takes, in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.conversion import SIZES, write_checkpoint
from tests.checkout import ROOT

pytest.importorskip("safetensors")
PROGRAM = """
import json, sys
from keras_bertfam.models import BertBackbone

def memory(kind):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith(kind)) * 1024

small, large = sys.argv[1:]
BertBackbone.from_preset(small)  # what every first load takes
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # forget the peak
before = memory("VmRSS")
backbone = BertBackbone.from_preset(large)
print(json.dumps({"peak": memory("VmHWM") - before, "left": memory("VmRSS") - before}))
"""


@pytest.mark.slow("release")
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux")
def test_peak_memory_of_bert_large(tmp_path):
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    write_checkpoint(tmp_path / "small", 2, 128, 2)
    size = write_checkpoint(tmp_path / "large", *SIZES["large"])
    assert size > 1.3e9
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "small", tmp_path / "large"],
        cwd=ROOT,
        # oneDNN's allocator, which TensorFlow has on newer CPUs, gives nothing back.
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout.splitlines()[-1])
    assert 0.9 * size < taken["left"] <= taken["peak"] < 1.3 * size, (size, taken)
