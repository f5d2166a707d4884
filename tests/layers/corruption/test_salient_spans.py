"""One marked span of each row, and dates that are marked by a rule."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import MaskTokens, SalientSpans, mark_dates

SPANS = np.array([[0, 1, 1, 0, 2, 3, 3, 3, 3, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]])


def masked(rows=2000, **kwargs):
    layer = MaskTokens(
        100,
        mask_token_id=4,
        mask_selection_length=3,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        strategy=SalientSpans(**kwargs),
    )
    ids = np.tile(np.arange(10, 20), (2 * rows, 1))
    return layer(ids, seed=[3, 4], span_ids=np.tile(SPANS, (rows, 1)))


def test_each_span_that_fits_is_equally_likely():
    out = masked()
    places, counts = out["mask_positions"].numpy(), out["mask_weights"].numpy().sum(1)
    assert (counts[1::2] == 0).all()  # without a span
    chosen = [tuple(p[: int(n)]) for p, n in zip(places, counts, strict=True)][::2]
    # The third is longer than a row has slots.
    assert {*chosen} == {(1, 2), (4,)}
    share = np.mean([span == (4,) for span in chosen])
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(len(chosen))
    ids = out["token_ids"].numpy()[::2]
    assert ((ids == 4).sum(1) == counts[::2]).all()
    only = masked(50, max_length=1)["mask_weights"].numpy().sum(1)
    assert (only[::2] == 1).all()


def test_config_and_bad_input():
    strategy = SalientSpans(max_length=4)
    assert SalientSpans.from_config(strategy.get_config()).max_length == 4
    with pytest.raises(ValueError, match="`max_length` must be at least 1"):
        SalientSpans(0)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("On 12 March 1887 it began.", "On ⟦12 March 1887⟧ it began."),
        ("From March 3rd, 1999, on", "From ⟦March 3rd, 1999⟧, on"),
        ("in Dec. 1941 and 1945", "in ⟦Dec. 1941⟧ and ⟦1945⟧"),
        ("the 1920s, 2024-02-29", "the ⟦1920s⟧, ⟦2024-02-29⟧"),
        ("⟦Expo 1967⟧ and 1968", "⟦Expo 1967⟧ and ⟦1968⟧"),
        ("⟦the 1914 to 1918 war⟧", "⟦the 1914 to 1918 war⟧"),
        ("maybe 300 men, 12345, March on", "maybe 300 men, 12345, March on"),
        ("", ""),
    ],
)
def test_dates(text, expected):
    assert mark_dates(text).numpy().decode() == expected
    assert mark_dates(tf.constant([text]))[0].numpy().decode() == expected


def test_dates_as_phrases():
    assert mark_dates("in 1887", "phrase").numpy().decode() == "in ⟪1887⟫"
    with pytest.raises(ValueError, match="`kind` must be one of"):
        mark_dates("in 1887", "date")
