"""Checkpoints damaged at random: they load, or say what is wrong."""

import copy
import json
import struct
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.presets import CheckpointError
from tests.tiny_checkpoint import (
    CONFIG,
    INDEX,
    WEIGHTS,
    sharded,
)
from tests.written_files import write


def mutated(draw, content):
    """Bytes with some of them changed, cut out or put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        count = draw(st.integers(0, 6))
        content[at : at + count] = draw(st.binary(max_size=6))
    return bytes(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def damaged(draw, files):
    """A checkpoint of which one thing is wrong."""
    files = copy.copy(files)
    kind = draw(st.sampled_from(["value", "bytes", "header", "index"]))
    if kind == "value":
        config = json.loads(files[CONFIG])
        config[draw(st.sampled_from(sorted(config)))] = draw(JSON)
        files[CONFIG] = json.dumps(config).encode()
    elif kind == "bytes":
        files[CONFIG] = mutated(draw, files[CONFIG])
    elif kind == "header":
        length = 8 + struct.unpack("<Q", files[WEIGHTS][:8])[0]
        head = mutated(draw, files[WEIGHTS][:length])
        files[WEIGHTS] = head + files[WEIGHTS][length:]
    else:
        files = sharded(files)
        names = files[INDEX]["weight_map"]
        names[draw(st.sampled_from(sorted(names)))] = draw(JSON)
        files[INDEX] = mutated(draw, json.dumps(files[INDEX]).encode())
    return files


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_fuzzed_checkpoints_load_or_say_what_is_wrong(data, whole, tmp_path):
    files = data.draw(damaged(whole))
    for path in tmp_path.iterdir():
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that something is left out
        try:
            backbone = TokenBackbone.from_preset(write(tmp_path, files))
        except CheckpointError:
            return
    assert backbone.hidden_dim == 8
