"""Pickled checkpoints: nothing in them is run."""

import fractions
import os
import pathlib
import pickle
import re

import numpy as np
import pytest

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import reading
from tests.tiny_checkpoint import CONFIG, load
from tests.written_files import write


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_runs_nothing(whole, tmp_path):
    torch = pytest.importorskip("torch")
    bomb = tmp_path / "exploded"
    payload = Payload(str(bomb))
    for index, content in enumerate(
        (
            pickle.dumps(Payload(str(bomb))),
            pickle.dumps({"a": Payload(str(bomb))}),
            b"x",
        )
    ):
        folder = write(
            tmp_path / str(index),
            {CONFIG: whole[CONFIG], "pytorch_model.bin": content},
        )
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            load(folder)
        path = pathlib.Path(folder, "pytorch_model.bin")
        torch.save({"a": payload}, path)
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            load(folder)
        torch.save([torch.zeros(2)], path)
        with pytest.raises(CheckpointError, match="must hold a dict of tensors"):
            load(folder)
    assert not bomb.exists()


def save_code(torch, path, kind):
    """A file with code of some kind, none of it harmful."""
    if kind == "a script":
        return torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    if kind == "a module":
        return torch.save(torch.nn.Linear(2, 2), path)
    if kind.startswith("protocol"):
        content = pickle.dumps(Payload("exploded"), int(kind[-1]))
        return pathlib.Path(path).write_bytes(content)
    payload = fractions.Fraction(1, 2) if kind == "a class" else Payload("exploded")
    return torch.save({"a": payload}, path)


CODE = {
    "a call": "posix.mkdir|nt.mkdir",
    "a class": "fractions.Fraction",
    "a module": "torch.nn.modules.linear.Linear",
    "a script": "a TorchScript archive",
    "protocol 0": "posix.mkdir|nt.mkdir",
    "protocol 2": "posix.mkdir|nt.mkdir",
    "protocol 5": "a pickle with REDUCE, STACK_GLOBAL",
}
ADVICE = re.compile("weights_only|safe_globals|succeed|trust|[Rr]e-running")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*TorchScript archive:UserWarning")
@pytest.mark.parametrize("kind", CODE)
def test_code_is_called_code(kind, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "pytorch_model.bin")
    save_code(torch, path, kind)
    with pytest.raises(CheckpointError) as caught:
        reading.read_pytorch(path)
    message = str(caught.value)
    assert message.startswith(f"{path!r} holds code and was refused; nothing")
    assert re.search(f"Received: ({CODE[kind]})\\.$", message)
    assert not ADVICE.search(message)
    assert caught.value.__cause__ is not None
    assert not os.path.exists("exploded")


@pytest.mark.parametrize("content", [b"", b"x", b"\x89HDF\r\n" + bytes(90), "cut"])
def test_damage_is_called_damage(content, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(3000)}, path)
    path.write_bytes(path.read_bytes()[:5000] if content == "cut" else content)
    with pytest.raises(CheckpointError) as caught:
        reading.read_pytorch(path)
    message = str(caught.value)
    assert message.startswith(f"{str(path)!r} can't be read; it is truncated, damaged")
    assert message.endswith(".") and not ADVICE.search(message)
    assert "code" not in message


def test_a_pickle_without_pytorch(whole, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    files = {CONFIG: whole[CONFIG], "pytorch_model.bin": b"x"}
    with pytest.raises(ImportError, match="only PyTorch reads without running it"):
        load(write(tmp_path, files))


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0+cu117"])
def test_a_pickle_with_a_pytorch_that_may_run_it(version, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match="may run code in it.*safetensors"):
        reading.read_pytorch(tmp_path / "pytorch_model.bin")


def test_a_pickle_that_declares_more_than_it_stores(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    for tensor in (
        torch.zeros(1).expand(10_000, 10_000),
        torch.empty(10_000, 10_000, device="meta"),
        torch.eye(3).to_sparse(),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(CheckpointError, match="must have 400000000 b|dense, real"):
            reading.read_pytorch(path)


def test_a_pickle_is_read_when_a_tensor_is(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12.0).reshape(4, 3).T
    torch.save({"a": tensor}, tmp_path / "pytorch_model.bin")
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "contiguous", None)
        lazy = reading.read_pytorch(tmp_path / "pytorch_model.bin")["a"]
    np.testing.assert_array_equal(np.asarray(lazy), tensor.numpy())


@pytest.mark.parametrize("name", ["state_dict", "model_state_dict", "model", "module"])
def test_checkpoints_of_trainers(name, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    torch.save({name: {"a": torch.ones(2)}, "step": 1}, path)
    assert [*reading.read_pytorch(path)] == ["a"]
    torch.save({"a": torch.ones(2), "step": 1}, path)
    with pytest.raises(CheckpointError, match="Received: a int under 'step'"):
        reading.read_pytorch(path)
