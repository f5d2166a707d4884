"""Corpora of several languages, mixed by a power of their sizes."""

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
    """Mix corpora, one of each language, so that small ones are read more often.

    With `p` a corpus's share of all text, its share of what is trained on is
    `q ∝ p ** exponent`. An exponent of 1 leaves shares as they are, and 0 makes all
    equal. Papers give it as an exponent, BERT's multilingual model .7 and XLM-R .3, or
    as a temperature, by which `q ∝ p ** (1 / temperature)`, as mT5; mmBERT calls its
    exponents temperatures.

    `dataset` of a preprocessor of pre-training takes the result in place of documents,
    and functions that learn vocabularies do as well: `q` is that of the text they see
    then. A pass has as much text as all corpora together. A corpus's documents, or
    rows where it is prepared, come in their order, go on from pass to pass, and begin
    again when all were there: none comes twice before each came once. Which corpus is
    next is drawn by the preprocessor's seed, pass and place alone, so that a run that
    is resumed goes on with the same batches.

    Args:
        corpora: dict from names to `tf.data.Dataset`s of scalar strings, as
            `read_documents` gives, which end; or to prepared corpora of one tokenizer,
            see `read_tokens`.
        exponent: float in [0, 1]. Defaults to `1.0`, unless there is a `temperature`.
        temperature: float, 1 or more: the inverse of an exponent.
        sizes: dict of a positive number for each corpus, in any unit: what `p` is the
            share of. Defaults to what they have: characters, for which they are gone
            through once, or tokens of prepared ones.
        consecutive: int. How many documents of a corpus follow each other, so that
            rows, and random second segments, are mostly of one language. Rows of
            prepared corpora are of one always. Defaults to `16`.

    Returns:
        What `dataset` takes. Its `repeats` are a dict from names to how often a pass
        has each document: below 1 some only. Its `changed(exponent, names)` mixes the
        same corpora, or some of them, in another way, without counting them again.

    Raises:
        ValueError: for a corpus without text or without an end, sizes that aren't of
            these corpora, an exponent or temperature that is out of its range, or
            both; and for prepared corpora beside others, or that differ in tokenizer
            or workers.

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
            "`corpora` must be a dict of a corpus or more by their names. "
            f"Received: {corpora!r}."
        )
    prepared = [isinstance(corpus, TokenCorpus) for corpus in corpora.values()]
    if any(prepared) and not all(prepared):
        raise ValueError(
            "`corpora` must be all prepared, or none. Received: "
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
            "`temperature` must be left out with an `exponent`, whose inverse it is. "
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
                f"`corpora` must not be mixed before. Received a mixture for {name!r}."
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
                "`corpora` must end, for their sizes to be known. Received for "
                f"{name!r}: a dataset that repeats itself."
            )
        found = count_text(documents)
    if not found[1]:
        raise ValueError(f"`corpora` must have text each. Received: none for {name!r}.")
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


# What `read_tokens` says of how batches are read, not of what.
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
