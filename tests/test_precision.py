"""`--precision auto`, on machines that are told."""

import types

import keras
import pytest

from keras_bertfam.cli import precision, pretraining
from keras_bertfam.cli.runs import PretrainingRun

BACKEND = keras.backend.backend()
FLAGS = {
    "flags\t\t: fpu avx2 avx512f": False,
    "processor\t: 0\nflags\t\t: fpu avx512_bf16 avx2\nbugs\t:\n": True,
    "flags : fpu amx_bf16\n": True,
    "Features\t: fp asimd": False,
    "": False,
    None: False,  # no such file
}


def chosen(given="auto"):
    lines = []
    run = PretrainingRun(files=["a.txt"], precision=given)
    return pretraining.with_precision(run, lines.append).precision, " ".join(lines)


@pytest.fixture
def processor(tmp_path, monkeypatch):
    def give(text):
        monkeypatch.setattr(precision, "_CPU_INFO", tmp_path / "cpuinfo")
        if text is not None:
            (tmp_path / "cpuinfo").write_text(text)

    return give


@pytest.mark.parametrize("text", FLAGS)
def test_processors(text, processor):
    processor(text)
    expected = "float32"
    if BACKEND == "torch" and FLAGS[text]:
        expected = "bfloat16"
    found, said = chosen()
    assert found == expected
    sure = "is" if expected == "bfloat16" else "isn't sure to be"
    assert said == (
        f"Precision: {expected}, as bfloat16 {sure} faster on this CPU with {BACKEND}."
    )
    said = chosen("bfloat16")[1]
    assert ("may be slower than float32" in said) == (expected == "float32")
    assert "may be slower" in chosen("float16")[1]
    assert chosen("float32") == ("float32", "")


def devices(monkeypatch, kind, capability):
    """Give the backend a device that isn't there."""
    if BACKEND == "torch":
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: kind == "GPU")
        able = int(capability.split(".")[0]) >= 8
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: able)
    elif BACKEND == "jax":
        import jax

        device = types.SimpleNamespace(
            platform=kind.lower(), compute_capability=capability
        )
        monkeypatch.setattr(jax, "local_devices", lambda: [device])
    else:
        import tensorflow as tf

        def listed(asked):
            return ["device"] if asked == kind else []

        details = {"compute_capability": tuple(map(int, capability.split(".")))}
        monkeypatch.setattr(tf.config, "list_logical_devices", listed)
        monkeypatch.setattr(tf.config, "list_physical_devices", listed)
        monkeypatch.setattr(
            tf.config.experimental, "get_device_details", lambda gpu: details
        )


@pytest.mark.parametrize(
    ("kind", "capability", "expected"),
    [
        ("GPU", "9.0", "bfloat16"),
        ("GPU", "12.0", "bfloat16"),
        ("GPU", "7.5", "float32"),
        *([] if BACKEND == "torch" else [("TPU", "0.0", "bfloat16")]),
    ],
)
def test_accelerators(kind, capability, expected, monkeypatch):
    devices(monkeypatch, kind, capability)
    found, said = chosen()
    assert found == expected and f"on this {kind}" in said
    assert chosen("float16") == ("float16", "")


@pytest.mark.slow
def test_a_run_keeps_what_was_chosen(tmp_path, processor):
    processor("flags : amx_bf16")
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n\n" * 60)
    run = PretrainingRun(
        files=[str(tmp_path / "a.txt")],
        output=str(tmp_path / "out"),
        precision="auto",
        size="tiny",
        batch_size=2,
        sequence_length=16,
        epochs=1,
        steps_per_epoch=1,
        vocabulary_size=100,
    )
    before, lines = keras.config.dtype_policy(), []
    try:
        model = pretraining.pretrain(run, lines.append)
    finally:
        keras.config.set_dtype_policy(before)
    expected = "bfloat16" if BACKEND == "torch" else "float32"
    assert f"Precision: {expected}" in lines[0]
    written = PretrainingRun.read(tmp_path / "out" / "run.yaml")
    assert written.precision == expected and run.precision == "auto"
    assert model.compute_dtype == expected
