"""Learn to write summaries, and score them by ROUGE.

    python summarize.py xsum --preset bart_base_en --output my_summaries
    python summarize.py news.csv --text article --label summary --output my_summaries
    python summarize.py hf:me/news --text article --label summary --output my_summaries

The data is cnn_dailymail, xsum or samsum, which TFDS loads unless `--folder` has their
files; `hf:` and the name of a dataset of Hugging Face; or a table of yours, in CSV,
TSV, JSON lines or Parquet. Of the last two a tenth is held out. `--preset` is what
BART's or T5's pre-training left; without it weights and vocabulary are new. Summaries
are written by beam search, as the papers' are. ROUGE is of the extra `evaluation`. Set
KERAS_BACKEND to choose the backend.
"""

import importlib
from typing import Annotated

import keras
import numpy as np
import tensorflow as tf
import typer

import keras_bertfam

NAMED = ("cnn_dailymail", "xsum", "samsum")
METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
# Beams, tokens at least and at most, and length penalty, of BART's configurations in
# `transformers`; all leave out trigrams that a summary has already.
BEAMS = {
    "cnn_dailymail": (4, 56, 142, 2.0),
    "xsum": (6, 11, 62, 1.0),
}
USUAL_BEAMS = (4, 0, 128, 1.0)


def need(library, package, what):
    """Import a library, or say what it is needed for."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise typer.BadParameter(
            f"{what} needs {library}, which isn't installed: pip install {package}"
        ) from error


def load(data, folder=None, text=None, label=None, limit=None):
    """Examples to train on, and others to validate on."""
    load_examples = keras_bertfam.datasets.load_examples
    if data in NAMED:
        if folder is None:
            need("tensorflow_datasets", "tensorflow-datasets", f"{data} by its name")
        parts = ("train", "validation")
        return [load_examples(data, part, folder, limit) for part in parts]
    if text is None or label is None:
        raise typer.BadParameter(
            f"--text and --label must name columns of {data}, as it is none of {NAMED}."
        )
    table = data
    if data.startswith("hf:"):
        library = need("datasets", "datasets", f"{data} of Hugging Face")
        table = library.load_dataset(data.removeprefix("hf:"), split="train")
    columns = {"text": text, "label": label, "kind": "text_to_text"}
    return load_examples(table, limit=limit, validation_split=0.1, **columns)


def make_model(texts, vocabulary_size, layers, width):
    """A small T5 with new weights, and a vocabulary of the texts."""
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        tf.data.Dataset.from_tensor_slices(texts), vocabulary_size, family="t5"
    )
    preprocessor = keras_bertfam.tasks.TextToTextPreprocessor(tokenizer)
    backbone = keras_bertfam.models.T5Backbone(
        tokenizer.vocabulary_size(),
        num_layers=layers,
        num_heads=max(1, width // 64),
        hidden_dim=width,
        intermediate_dim=4 * width,
    )
    return keras_bertfam.tasks.TextToText(backbone, preprocessor, label_smoothing=0.1)


def write(model, texts, max_length, settings, batch_size):
    """Summaries of texts, of which what is too long for a row is cut off."""
    preprocessor, written = model.preprocessor, []
    pad = preprocessor.tokenizer.pad_token_id
    for start in range(0, len(texts), batch_size):
        rows = preprocessor.generate_preprocess(texts[start : start + batch_size])
        names = ("token_ids", "padding_mask")
        inputs = {name: rows[f"encoder_{name}"] for name in names}
        ids = model.generate(inputs, max_length, "beam", settings=settings)
        longest = max(map(len, ids))
        table = np.array([[*row, *[pad] * (longest - len(row))] for row in ids])
        written += preprocessor.generate_postprocess(
            {"decoder_token_ids": table, "decoder_padding_mask": table != pad}
        )
    return written


def main(
    data: Annotated[str, typer.Argument(help="A name, hf:NAME, or a table's file.")],
    output: Annotated[str, typer.Option(help="Preset directory to write.")],
    preset: Annotated[str | None, typer.Option(help="Preset to go on from.")] = None,
    folder: Annotated[str | None, typer.Option(help="Files of a name.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of texts.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of summaries.")] = None,
    length: Annotated[int, typer.Option(help="Tokens of a text.")] = 512,
    target_length: Annotated[int, typer.Option(help="Tokens of a summary.")] = 128,
    vocabulary_size: int = 8000,
    layers: int = 3,
    width: int = 256,
    epochs: int = 3,
    batch_size: int = 16,
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: 3e-5, of new weights 1e-3.")
    ] = None,
    num_beams: int | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    length_penalty: float | None = None,
    limit: Annotated[int | None, typer.Option(help="Only so many pairs.")] = None,
    seed: int = 0,
):
    """Train on texts and their summaries, and score what is written for others."""
    need("rouge_score", "keras-bertfam[evaluation]", "ROUGE")
    keras.utils.set_random_seed(seed)
    train, held_out = load(data, folder, text, label, limit)
    if preset is None:
        model = make_model(train.x + train.y, vocabulary_size, layers, width)
    else:
        model = keras_bertfam.tasks.TextToText.from_preset(preset, label_smoothing=0.1)
    before = model.preprocessor
    model.preprocessor = keras_bertfam.tasks.TextToTextPreprocessor(
        before.tokenizer,
        length,
        target_length,
        decoder_start_token_id=before.decoder_start_token_id,
        seed=seed,
    )
    # T5 is told which task it is.
    of_t5 = isinstance(model.backbone, keras_bertfam.models.T5Backbone)
    prefix = "summarize: " if of_t5 else ""
    inputs, others = ([prefix + x for x in part.x] for part in (train, held_out))
    steps = epochs * -(-len(inputs) // batch_size)
    peak = learning_rate or (1e-3 if preset is None else 3e-5)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=peak, warmup_steps=steps // 10
    )
    model.compile(keras_bertfam.optimizers.AdamW(schedule, clipnorm=1.0))
    prepare = model.preprocessor.dataset
    batches = prepare((inputs, train.y), batch_size)
    validated = prepare((others, held_out.y), batch_size, training=False)
    model.fit(batches, epochs=epochs, validation_data=validated, verbose=2)
    model.save_to_preset(output)
    given = (num_beams, min_length, max_length, length_penalty)
    usual = BEAMS.get(data, USUAL_BEAMS)
    beams, least, most, penalty = (
        default if value is None else value
        for value, default in zip(given, usual, strict=True)
    )
    settings = keras_bertfam.tasks.GenerationSettings(
        num_beams=beams,
        min_length=least,
        length_penalty=penalty,
        no_repeat_ngram_size=3,
    )
    written = write(model, others, most, settings, batch_size)
    for reference, ours in list(zip(held_out.y, written, strict=True))[:3]:
        print(f"{reference}\n  {ours}")
    scores = keras_bertfam.metrics.compute_metrics(METRICS, held_out.y, written)
    print(", ".join(f"{name} {score:.1f}" for name, score in scores.items()))
    return scores


if __name__ == "__main__":
    typer.run(main)
