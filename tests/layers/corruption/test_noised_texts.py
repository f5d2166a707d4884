"""What noise becomes: the rows that T5's and BART's papers print."""

import tensorflow as tf

from keras_bertfam.layers.corruption import noise_masks, noised_texts
from keras_bertfam.layers.corruption.objectives import inverted

WORDS = "Thank you for inviting me to your party last week .".split()
NAMES = {11: "<M>", 12: "<X>", 13: "<Y>", 14: "<Z>", **dict(enumerate(WORDS))}


def words(tokens):
    return [" ".join(NAMES[i] for i in row) for row in tokens.to_list()]


def given(*noise):
    text = tf.ragged.constant([[*range(11)]], dtype=tf.int32)
    return text, tf.ragged.constant([[k in noise for k in range(11)]])


def test_rows_of_t5s_paper():
    text, noise = given(2, 3, 8)
    assert words(noised_texts.mask_each(text, noise, 11)) == [
        "Thank you <M> <M> me to your party <M> week ."
    ]
    assert words(noised_texts.drop_noise(text, noise)) == [
        "Thank you me to your party week ."
    ]
    assert words(noised_texts.drop_noise(text, inverted(noise))) == [
        "for inviting last"
    ]
    sentinels = [12, 13, 14]
    assert words(noised_texts.sentinel_per_span(text, noise, sentinels)) == [
        "Thank you <X> me to your party <Y> week ."
    ]
    assert words(noised_texts.sentinel_per_span(text, inverted(noise), sentinels)) == [
        "<X> for inviting <Y> last <Z>"
    ]
    text, noise = given(2, 3, 4, 6, 7, 8)
    assert words(noised_texts.sentinel_per_span(text, noise, sentinels)) == [
        "Thank you <X> to <Y> week ."
    ]
    assert words(noised_texts.sentinel_per_span(text, inverted(noise), sentinels)) == [
        "<X> for inviting me <Y> your party last <Z>"
    ]
    text, noise = given(*range(4, 11))
    assert words(noised_texts.drop_noise(text, noise)) == ["Thank you for inviting"]
    assert words(noised_texts.drop_noise(text, inverted(noise))) == [
        "me to your party last week ."
    ]


def test_sentinels_of_spans_are_those_of_their_mask():
    """Texts of no token, of one, of a span that touches the next text's."""
    lengths = tf.constant([7, 0, 1, 4, 0, 2])
    text = noise_masks.as_rows(tf.range(14), lengths)
    mask = [bool(k in (2, 3, 5, 6, 10, 11, 13)) for k in range(14)]
    noise = noise_masks.as_rows(tf.constant(mask), lengths)
    begin = tf.constant([[2, 5], [0, 0], [1, 1], [2, 4], [0, 0], [1, 2]])
    end = tf.constant([[4, 7], [0, 0], [1, 1], [4, 4], [0, 0], [2, 2]])
    inputs, targets = noised_texts.sentinels_of_spans(text, (begin, end), [21, 22])
    assert inputs.to_list()[0] == [0, 1, 21, 4, 22]
    assert targets.to_list()[3] == [21, 10, 11]
    for made, hidden in ((inputs, noise), (targets, inverted(noise))):
        expected = noised_texts.sentinel_per_span(text, hidden, [21, 22])
        assert made.to_list() == expected.to_list()


def test_rows_of_barts_figure():
    text, noise = given(1, 4)
    _, starts = given(1, 4)
    assert words(noised_texts.mask_per_span(text, noise, starts, 11)) == [
        "Thank <M> for inviting <M> to your party last week ."
    ]
    text, noise = given(1, 2, 3, 4)
    _, starts = given(1, 3)
    assert words(noised_texts.mask_per_span(text, noise, starts, 11)) == [
        "Thank <M> <M> to your party last week ."
    ]
