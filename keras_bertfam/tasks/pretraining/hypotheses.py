"""RAG-Sequence's decoding: texts of each passage, scored with all of them."""

from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tasks.pretraining.generation import write_texts
from keras_bertfam.tasks.pretraining.generation_inputs import padded_width
from keras_bertfam.tasks.pretraining.generation_settings import GenerationSettings
from keras_bertfam.tasks.pretraining.marginals import sequence_marginal
from keras_bertfam.types import Model

# Texts scored at once: few shapes, and so few compilations.
_AT_ONCE = 32


def likeliest_texts(
    task: Model,
    batch: dict[str, Any],
    start: list[int],
    max_length: int,
    stop: list[Any] | None,
    fast: bool,
    settings: GenerationSettings,
) -> list[list[int]]:
    """Find the likeliest text for each question, of those that its passages suggest.

    Args:
        task: a `RetrievalAugmentedGenerator`.
        batch: dict of arrays, its inputs without the decoder's.
        start: list of ids that each text begins with.
        max_length: int. Tokens of a text.
        stop: list of ids that end a text, a list of them for each question, or `None`.
        fast: bool. Whether `p(y | x, z)` is taken for 0 where the search with `z`
            didn't find `y`, so that each text is scored once.
        settings: `GenerationSettings`, whose `num_beams` are the texts that a passage
            suggests.

    Returns:
        A list of lists of ids, `start` included.

    Reference: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.5.
    """
    rows, passages = np.shape(batch["encoder_token_ids"])[:2]
    if stop and isinstance(stop[0], list):  # each passage is a row of its own
        stop = [ids for ids in stop for _ in range(passages)]
    suggested = _suggested(task, batch, start, max_length, stop, settings)
    texts, pairs = [], []  # of each question its texts; what is scored
    for row in range(rows):
        by_passage = suggested[row * passages : (row + 1) * passages]
        distinct = list(dict.fromkeys(text for found in by_passage for text in found))
        texts.append(distinct)
        for number, text in enumerate(distinct):
            asked = (z for z in range(passages) if not fast or text in by_passage[z])
            pairs += [(row, number, z, text) for z in asked]
    context = task.read({name: ops.convert_to_tensor(x) for name, x in batch.items()})
    likelihoods = np.full((rows, max(map(len, texts)), passages), -np.inf, "float32")
    scored = _log_likelihoods(task, context, pairs, len(start))
    for (row, number, z, _), value in zip(pairs, scored, strict=True):
        likelihoods[row, number, z] = value
    scores = ops.convert_to_numpy(context["passage_scores"])
    best = []
    for row, found in enumerate(texts):
        of_texts = ops.convert_to_tensor(likelihoods[row, : len(found), :, None])
        prior = np.repeat(scores[row : row + 1], len(found), axis=0)
        marginals = ops.convert_to_numpy(sequence_marginal(prior, of_texts))
        best.append(list(found[int(np.argmax(marginals))]))
    return best


def _suggested(task, batch, start, max_length, stop, settings):
    """Search for texts with each passage alone, as lists of tuples."""
    sources = {
        name: np.reshape(value, (-1, np.shape(value)[-1]))
        for name, value in batch.items()
        if name.startswith("encoder_")
    }
    rows = [start] * len(sources["encoder_token_ids"])
    count = settings.num_beams
    settings = settings.replace(num_return_sequences=count, return_scores=False)
    sampler = "beam" if count > 1 else "greedy"
    generator = task.generator
    found = write_texts(generator, rows, sources, max_length, sampler, stop, settings)
    return [[tuple(text) for text, _ in texts] for texts in found]


def _log_likelihoods(task, context, pairs, begun):
    """Compute `log p(y | x, z)` of pairs of a text and a passage, as an array."""
    positions = task.backbone.max_sequence_length
    longest = padded_width(max(len(text) for *_, text in pairs), positions)
    scores = []
    for begin in range(0, len(pairs), _AT_ONCE):
        chosen = pairs[begin : begin + _AT_ONCE]
        chosen = chosen + chosen[:1] * (_AT_ONCE - len(chosen))
        ids = np.zeros((_AT_ONCE, longest), "int32")
        lengths = np.array([len(text) for *_, text in chosen])
        for row, (*_, text) in zip(ids, chosen, strict=True):
            row[: len(text)] = text
        places = np.arange(1, longest)
        counted = (places >= begun) & (places < lengths[:, None])
        rows, _, passages, _ = zip(*chosen, strict=True)
        losses = _losses(task, context, ids, np.array(rows), np.array(passages))
        scores.append(-(losses * counted).sum(1))
    return np.concatenate(scores)[: len(pairs)]


def _losses(task, context, ids, rows, passages):
    """Compute cross-entropies `(rows, length - 1)` of each token but the first."""
    count = context["cross_mask"].shape[1]
    index = ops.convert_to_tensor((rows * count + passages).astype("int32"))

    def chosen(part):
        flat = ops.reshape(part, (-1, *ops.shape(part)[2:]))
        return ops.take(flat, index, axis=0)

    outputs = task.backbone.decoder(
        {"token_ids": ops.convert_to_tensor(ids[:, :-1])},
        context=tuple(tuple(map(chosen, pair)) for pair in context["context"]),
        cross_mask=chosen(context["cross_mask"]),
    )
    logits = task.head(outputs["sequence_output"])
    targets = ops.convert_to_tensor(ids[:, 1:])
    return ops.convert_to_numpy(token_crossentropy(targets, logits))
