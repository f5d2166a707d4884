"""Mixtures of corpora of several languages, by a power of their sizes."""

import dataclasses
import math
import numbers
from collections.abc import Mapping

import tensorflow as tf

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.layers.data.documents.mixtures import DocumentMixture, count_text
from keras_bertfam.layers.data.documents.shares import SamplingLaw
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus
from keras_bertfam.layers.data.prepared.token_mixture import TokenMixture
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset


@checked
def sample_corpora(
    corpora: Mapping[str, TFDataset | TokenCorpus],
    exponent: float | None = None,
    temperature: float | None = None,
    sizes: Mapping[str, float] | None = None,
    consecutive: int = 16,
) -> DocumentMixture | TokenMixture:
    """Mix corpora of several languages, so that small ones are read more often.

    If `p` is a corpus's share of all text, its share in the mixture is
    `q ∝ p ** exponent`. An exponent of 1 leaves shares as they are; 0 makes them equal.
    BERT's multilingual model has an exponent of .7, XLM-R of .3. mT5 gives a
    temperature instead, with `q ∝ p ** (1 / temperature)`. mmBERT calls its exponents
    temperatures.

    Pass the result to the `dataset` of a preprocessor of pre-training in place of
    documents, or to a function that learns a vocabulary, which then sees text in the
    shares `q`. A pass has as much text as all corpora together. The documents of a
    corpus, or the rows of a prepared one, come in order, and go on from pass to pass;
    after the last comes the first again. So none comes twice before all came once.
    Which corpus is next depends only on the preprocessor's seed, the pass and the
    place: a resumed run goes on with the same batches.

    Args:
        corpora: dict from names to `tf.data.Dataset`s of scalar strings, as
            `read_documents` gives, which must end; or to prepared corpora of one
            tokenizer, see `read_tokens`.
        exponent: float in [0, 1]. Defaults to `1.0`, unless there is a `temperature`.
        temperature: float, 1 or more: the inverse of an exponent.
        sizes: dict of a positive number for each corpus, in any unit. The shares `p`
            are shares of these numbers. Defaults to the number of characters, which
            needs one reading of the corpora; or, if they are prepared, of tokens.
        consecutive: int. How many documents of a corpus follow each other. They make
            rows, and random second segments, mostly of one language. Rows of prepared
            corpora always have one language. Defaults to `16`.

    Returns:
        A mixture that `dataset` takes. Its `repeats` are a dict from names to how often
        a pass has each document; below 1 a pass has only some. Its `changed(exponent,
        names)` mixes the same corpora, or some of them, in another way, without
        counting them again.

    Raises:
        ValueError: for a corpus without text or without an end; sizes of other corpora;
            an exponent or temperature out of its range, or both; prepared corpora mixed
            with others, or with different tokenizers or workers.

    Example:

    ```python
    import tensorflow as tf
    icelandic = tf.data.Dataset.from_tensor_slices(["Halló heimur."])
    english = keras_bertfam.layers.read_documents("corpus/*.txt")
    mixed = keras_bertfam.layers.sample_corpora(
        {"is": icelandic, "en": english}, exponent=0.3)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(mixed, 8000)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(tokenizer, 64)
    batches = preprocessor.dataset(mixed, batch_size=2)  # for fit()
    ```

    References: [Conneau and Lample, 2019](https://arxiv.org/abs/1901.07291),
    section 3.1; [Conneau et al., 2019](https://arxiv.org/abs/1911.02116), section 3.
    """
    power = _power(exponent, temperature)
    check_at_least(1, consecutive=consecutive)
    if not isinstance(corpora, Mapping) or not corpora:
        raise ValueError(
            "`corpora` must be a dict from names to corpora, at least one. "
            f"Received: {corpora!r}."
        )
    prepared = [isinstance(corpus, TokenCorpus) for corpus in corpora.values()]
    if any(prepared) and not all(prepared):
        raise ValueError(
            "`corpora` must all be prepared, or none of them. Received: "
            f"{ {name: type(corpus).__name__ for name, corpus in corpora.items()} }."
        )
    counts = {name: _count(name, corpus) for name, corpus in corpora.items()}
    texts = {name: text for name, (_, text) in counts.items()}
    law = SamplingLaw(texts, _checked_sizes(sizes, texts), power)
    if any(prepared):
        return _prepared(corpora, law)
    documents = {name: count for name, (count, _) in counts.items()}
    return DocumentMixture(corpora, documents, law, consecutive)


def _power(exponent, temperature):
    if exponent is not None and temperature is not None:
        raise ValueError(
            "`temperature` must be left out if there is an `exponent`, its inverse. "
            f"Received: temperature={temperature}, exponent={exponent}."
        )
    if temperature is not None:
        check_number("temperature", temperature, 1.0)
        return 1 / temperature
    if exponent is None:
        return 1.0
    check_number("exponent", exponent, 0.0, 1.0)
    return exponent


def _count(name, corpus):
    """Count the documents of a corpus, and its characters or tokens."""
    if isinstance(corpus, TokenCorpus):
        if isinstance(corpus, TokenMixture):
            raise ValueError(
                f"`corpora` must not be mixtures. Received: a mixture for {name!r}."
            )
        counts = corpus.manifest.counts
        found = counts["documents"], counts["tokens"]
    else:
        if not isinstance(corpus, tf.data.Dataset):
            raise ValueError(
                "`corpora` must be `tf.data.Dataset`s of scalar strings, or prepared. "
                f"Received for {name!r}: {type(corpus).__name__}."
            )
        documents = check_documents(corpus, f"corpora[{name!r}]")
        if documents.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                "`corpora` must end, so that their sizes can be counted. Received for "
                f"{name!r}: a dataset that repeats without end."
            )
        found = count_text(documents)
    if not found[1]:
        raise ValueError(f"`corpora` must all have text. Received: none for {name!r}.")
    return found


def _checked_sizes(sizes, texts):
    if sizes is None:
        return texts
    if {*sizes} != {*texts}:
        raise ValueError(
            f"`sizes` must have a number for each of {[*texts]}, and no others. "
            f"Received: {sizes!r}."
        )
    for name, size in sizes.items():
        if not isinstance(size, numbers.Real) or not 0 < size < math.inf:
            raise ValueError(
                "`sizes` must be positive, finite numbers. "
                f"Received for {name!r}: {size!r}."
            )
    return {name: sizes[name] for name in texts}


# Arguments of `read_tokens` that say how batches are read.
_READING = ("num_workers", "worker_index", "num_slices", "epoch")


def _prepared(corpora, law):
    (first, corpus), *others = corpora.items()
    for name, other in others:
        told = (corpus.manifest.tokenizer, other.manifest.tokenizer)
        if told[0]["digest"] != told[1]["digest"]:
            raise ValueError(
                "`corpora` must be prepared with one tokenizer. Received for "
                f"{first!r}: {told[0]}, and for {name!r}: {told[1]}."
            )
        for setting in _READING:
            own, theirs = getattr(corpus, setting), getattr(other, setting)
            if own != theirs:
                raise ValueError(
                    f"`corpora` must be read with the same `{setting}`. Received: "
                    f"{own!r} for {first!r}, {theirs!r} for {name!r}."
                )
    fields = {f.name: getattr(corpus, f.name) for f in dataclasses.fields(corpus)}
    return TokenMixture(**fields, corpora=dict(corpora), law=law)
