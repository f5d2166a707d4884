"""What `python -m keras_bertfam convert` makes of a checkpoint."""

import keras
import numpy as np
from typer.testing import CliRunner

from keras_bertfam.cli.app import app


def assert_converts_whole(cls, source, folder):
    """Assert that `convert` writes what `from_preset` gives, heads and all.

    Args:
        cls: the task that the checkpoint is.
        source: path of a checkpoint, nothing of which is left out.
        folder: path of the folder to write.
    """
    result = CliRunner().invoke(app, ["convert", str(source), str(folder)])
    assert result.exit_code == 0, result.output
    assert f"{cls.__name__} with" in result.output
    assert "left out" not in result.output and "and new" not in result.output
    expected = cls.from_preset(str(source))
    got = cls.from_preset(str(folder))
    for one, other in zip(expected.weights, got.weights, strict=True):
        if keras.backend.is_float_dtype(one.dtype):
            arrays = (keras.ops.convert_to_numpy(v) for v in (one, other))
            np.testing.assert_array_equal(*arrays)
