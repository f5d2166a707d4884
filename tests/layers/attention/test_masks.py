import keras
import numpy as np
import pytest

from keras_bertfam.layers.attention.masks import (
    restarted_positions,
    same_sequence,
)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_positions_restart_and_sequences_see_themselves(dtype):
    ids = np.array(
        [
            [1, 1, 1, 2, 3, 3, 0, 0],  # padding behind
            [0, 0, 7, 7, 7, 7, 7, 9],  # padding before, and numbers left out
            [1, 2, 3, 4, 5, 6, 7, 8],
            [4, 4, 4, 4, 4, 4, 4, 4],
            [2, 2, 2, 1, 1, 1, 1, 1],
        ],
        dtype,
    )
    tensor = keras.ops.convert_to_tensor(ids)
    same, positions = same_sequence(tensor, ids > 0), restarted_positions(tensor)
    expected = [
        [0, 1, 2, 0, 0, 1, 0, 1],
        [0, 1, 0, 1, 2, 3, 4, 0],
        [0] * 8,
        range(8),
        [0, 1, 2, 0, 1, 2, 3, 4],
    ]
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(positions), [*map(list, expected)]
    )
    together = (ids[:, :, None] == ids[:, None]) & (ids > 0)[:, None]
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(same), together)


def test_positions_of_random_rows():
    rng = np.random.default_rng(0)
    ids = np.cumsum(rng.random((16, 130)) < rng.random((16, 1)), axis=1)
    positions = restarted_positions(ids.astype("int32"))
    counted = [[list(row[:i]).count(row[i]) for i in range(130)] for row in ids]
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(positions), counted)
