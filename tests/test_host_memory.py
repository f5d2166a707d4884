"""A step's memory is kept for the next one, unless somebody says otherwise."""

import os
import subprocess
import sys

import keras
import pytest

from keras_bertfam import host_memory
from tests.checkout import ROOT

# Prints how many pages ten steps need anew, each with blocks of 40 and 80 MB.
FAULTS = """
import resource
import keras_bertfam, keras, torch

def step():
    blocks = [torch.ones(size, 1 << 20) for size in (10, 20, 10)]
    return blocks[0].sum().item()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")


def test_nothing_is_changed_where_tensorflow_or_the_user_allocates(monkeypatch):
    if keras.backend.backend() != "tensorflow":
        monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert host_memory.keep_freed_memory() is False


@linux
@pytest.mark.any_backend
@pytest.mark.parametrize("variable", ["GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"])
def test_the_environment_and_accelerators_come_first(monkeypatch, variable):
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(host_memory, "_ACCELERATORS", ())
    assert host_memory._is_left_to_us()
    monkeypatch.setattr(host_memory, "_ACCELERATORS", ("/dev/nul*",))
    assert not host_memory._is_left_to_us()
    monkeypatch.setattr(host_memory, "_ACCELERATORS", ())
    monkeypatch.setenv(variable, "1")
    assert not host_memory._is_left_to_us()


@linux
@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kept", [True, False])
def test_pages_of_a_step_are_there_for_the_next(kept):
    pytest.importorskip("torch")
    environment = os.environ | {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    if kept:
        del environment["MALLOC_ARENA_TEST"]
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    faults = int(done.stdout)
    # All of them are 409,600; some steps find gaps where a block doesn't fit.
    assert faults < 60_000 if kept else faults > 300_000
