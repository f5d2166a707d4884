"""Compares objectives and encoders on your text, with the same budget for each.

python ablation.py 'corpus/*.txt' --objective dynamic --objective electra --steps 2000

The files have blank lines between documents. The picture at the end needs the extra
`analysis`. Set KERAS_BACKEND to choose the backend.
"""

import json
import os
import time
import zipfile
from typing import Annotated

import keras
import numpy as np
import typer

from keras_bertfam import analysis, layers, models, tasks


def masked(duplicates=None, **corruption):
    def build(backbone, **common):
        preprocessor = tasks.MaskedLMPreprocessor(**common, **corruption)
        return tasks.MaskedLM(backbone, preprocessor), {"duplicates": duplicates}

    return build


def with_sentences(objective):
    def build(backbone, **common):
        preprocessor = tasks.MaskedLMSentencePairPreprocessor(
            **common, sentence_objective=objective
        )
        model = tasks.MaskedLMSentencePair(
            backbone, preprocessor, sentence_objective=objective
        )
        return model, {}

    return build


def replaced(variant):
    def build(backbone, **common):
        preprocessor = tasks.ReplacedTokenDetectionPreprocessor(**common)
        model = tasks.ReplacedTokenDetection(
            backbone, preprocessor, variant=variant, generator_size=0.5
        )
        return model, {}

    return build


OBJECTIVES = {
    "static": masked(duplicates=10),
    "dynamic": masked(),
    "words": masked(strategy="words"),
    "ngrams": masked(strategy="ngrams"),
    "spans": masked(strategy="spans"),
    "nsp": with_sentences("nsp"),
    "sop": with_sentences("sop"),
    "electra": replaced("electra"),
    "electra_15": replaced("electra_15"),
    "replace_mlm": replaced("replace_mlm"),
    "all_tokens_mlm": replaced("all_tokens_mlm"),
}


class Clock(keras.callbacks.Callback):
    """Seconds per step, without the first ones, which compile."""

    seconds = float("nan")  # of runs that are too short

    def on_train_batch_end(self, batch, logs=None):
        if batch == 9:
            self.begin = time.perf_counter()
        elif batch > 9:
            self.seconds = (time.perf_counter() - self.begin) / (batch - 9)


def masked_accuracy(task, batches):
    """The share of masked tokens that are predicted right, equal for all tasks."""
    right = total = 0
    for x, y, weights in batches.as_numpy_iterator():
        logits = keras.ops.convert_to_numpy(task.masked_lm_logits(x))
        right += np.sum((logits.argmax(-1) == y) * weights)
        total += weights.sum()
    return float(right / total)


def pseudo_perplexity(task, texts):
    sums, counts = analysis.pseudo_log_likelihood(task, texts)
    return float(np.exp(-sums.sum() / counts.sum()))


def blimp_accuracy(task, path, pairs_each=10):
    """The share of minimal pairs whose acceptable sentence is found more probable."""
    pairs = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("data/") and name.endswith(".jsonl"):
                with archive.open(name) as lines:
                    pairs += [json.loads(next(lines)) for _ in range(pairs_each)]
    good, bad = (
        analysis.pseudo_log_likelihood(task, [pair[side] for pair in pairs])[0]
        for side in ("sentence_good", "sentence_bad")
    )
    return float(np.mean(good > bad))


def run(objective, architecture, tokenizer, train, held_out, blimp, options):
    """Pre-trains one model and returns its row of the table."""
    keras.utils.set_random_seed(options["seed"])
    length, batch_size = options["sequence_length"], options["batch_size"]
    backbone = models.EncoderBackbone.from_preset(
        architecture,
        load_weights=False,
        vocabulary_size=tokenizer.vocabulary_size(),
        max_sequence_length=length,
        dropout=0.0,
    )
    common = {
        "tokenizer": tokenizer,
        "sequence_length": length,
        "seed": options["seed"],
    }
    task, data_options = OBJECTIVES[objective](backbone, **common)
    task.compile(learning_rate=options["learning_rate"], warmup_steps=0.1)
    data = task.preprocessor.dataset(train, batch_size=batch_size, **data_options)
    clock = Clock()
    task.fit(
        data.repeat(), steps_per_epoch=options["steps"], verbose=2, callbacks=[clock]
    )
    row = {"objective": objective, "encoder": architecture}
    plain = tasks.MaskedLMPreprocessor(**common)
    batches = plain.dataset(held_out, batch_size=batch_size, training=False)
    row["masked accuracy"] = masked_accuracy(task, batches.take(50))
    texts = [text.decode() for text in held_out.take(20).as_numpy_iterator()]
    row["pseudo-perplexity"] = pseudo_perplexity(task, texts)
    if isinstance(task, tasks.MaskedLMSentencePair):
        pairs = task.preprocessor.dataset(held_out, batch_size, training=False)
        metrics = task.evaluate(pairs.take(50), verbose=0, return_dict=True)
        row["sentence accuracy"] = metrics["sentence_accuracy"]
    if blimp:
        row["BLiMP"] = blimp_accuracy(task, blimp)
    row["tokens/s"] = batch_size * length / clock.seconds
    return row


def table(rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    for row in rows:
        cells = [row.get(name, "") for name in columns]
        lines.append([f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [f"{row['objective']}\n{row['encoder']}" for row in rows]
    figure, axes = pyplot.subplots(figsize=(2 + len(rows), 4), layout="constrained")
    axes.bar(names, [row["masked accuracy"] for row in rows])
    axes.set(ylabel="masked accuracy, held out")
    axes.tick_params(axis="x", labelrotation=45)
    figure.savefig(path, dpi=120)


def main(
    files: str,
    objective: Annotated[list[str] | None, typer.Option()] = None,
    architecture: Annotated[list[str] | None, typer.Option()] = None,
    steps: int = 1000,
    batch_size: int = 32,
    sequence_length: int = 128,
    vocabulary_size: int = 8000,
    learning_rate: float = 1e-3,
    seed: int = 0,
    output: str = "ablation.png",
):
    """Pre-train each objective on each architecture, and print one table."""
    unknown = set(objective or ()) - set(OBJECTIVES)
    if unknown:
        raise typer.BadParameter(f"{unknown} not among {sorted(OBJECTIVES)}")
    documents = layers.read_documents(files, max_bytes=1 << 15)
    numbered = documents.enumerate()
    held_out, train = (
        numbered.filter(lambda i, _, part=part: (i % 10 == 0) == part).map(
            lambda _, text: text
        )
        for part in (True, False)
    )
    tokenizer = layers.train_word_piece(train.take(2000), vocabulary_size)
    blimp = os.path.join(os.environ.get("BERTFAM_DATA", ""), "blimp", "BLiMP.zip")
    options = {
        "steps": steps,
        "batch_size": batch_size,
        "sequence_length": sequence_length,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    rows = []
    for name in architecture or ["bert_l4_h128_en_uncased"]:
        for each in objective or OBJECTIVES:
            blimp_path = blimp if os.path.isfile(blimp) else None
            rows.append(
                run(each, name, tokenizer, train, held_out, blimp_path, options)
            )
            print(table(rows), flush=True)
    plot(rows, output)
    return rows


if __name__ == "__main__":
    typer.run(main)
