"""The demonstration: the whole job on text that every Python has."""

import json
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import typer

from keras_bertfam.cli.pretraining import Recipe
from keras_bertfam.corpus import python_documentation
from keras_bertfam.export import export_saved_model
from keras_bertfam.layers import read_documents
from keras_bertfam.tasks import MaskedLM

SENTENCES = (
    "the [MASK] statement is used to define a function .",
    "return the value of the named [MASK] of object .",
    "the name is bound in the local [MASK] .",
)
# What a client needs: no keras, no keras_bertfam.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = served(text=tf.constant(json.loads(sys.argv[2])))
tokens = answers["predicted_tokens"][:, 0, 0].numpy()
print(json.dumps([token.decode() for token in tokens]))
"""


def run(output: str, epochs: int) -> None:
    """Run every step and print its result.

    Args:
        output: directory for the preset, the plot and the SavedModels.
        epochs: passes over the text.
    """
    os.makedirs(output, exist_ok=True)
    texts = python_documentation()
    held_out, train = texts[::10], [t for i, t in enumerate(texts) if i % 10]
    words = sum(len(text.split()) for text in texts)
    _say("Text", f"{len(texts)} documents of Python's documentation, {words:,} words;")
    _say("", f"{len(held_out)} documents are held out")
    recipe = Recipe(
        architecture="bert_l4_h128_en_uncased",
        vocabulary_size=2000,
        sequence_length=64,
        batch_size=32,
        epochs=epochs,
        learning_rate=2e-3,
        warmup_steps=0.1,
        overrides={"num_heads": 4, "dropout": 0.0},
    )
    backend = keras.backend.backend()
    _say("Training", f"a BERT of 4 layers, width 128, with {backend}, {epochs} epochs")
    keras.utils.set_random_seed(0)
    datasets = [
        read_documents(_write_documents(os.path.join(output, name), part))
        for name, part in (("train.txt", train), ("held_out.txt", held_out))
    ]
    model, history = recipe.run(*datasets)
    _report_accuracy(model, datasets[1], history.history)
    _plot(history.history, os.path.join(output, "loss.png"))
    answers = model.fill_mask(list(SENTENCES), top_k=3)
    for sentence, [slot] in zip(SENTENCES, answers, strict=True):
        best = ", ".join(f"{token} {probability:.2f}" for token, probability in slot)
        _say("Mask", f"{sentence}  ->  {best}")
    _save_and_reload(model, os.path.join(output, "preset"), answers)
    _serve(model, os.path.join(output, "served"), answers)


def _write_documents(path, documents):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(documents) + "\n")
    return path


def _say(title, text):
    for i, line in enumerate(textwrap.wrap(text, 76) or [""]):
        typer.echo(f"{title if i == 0 else '':10s}{line}")


def _report_accuracy(model, held_out, history):
    data = model.preprocessor.dataset(held_out, batch_size=32, training=False)
    targets = np.concatenate([y[w > 0] for _, y, w in data.as_numpy_iterator()])
    baseline = np.bincount(targets).max() / len(targets)
    _say(
        "Held out",
        f"masked accuracy {history['val_accuracy'][-1]:.1%}, against "
        f"{baseline:.1%} for always guessing their most frequent token; "
        f"perplexity {history['val_perplexity'][-1]:.0f}",
    )


def _plot(history, path):
    try:
        import matplotlib
    except ImportError:
        _say("Plot", "skipped: pip install matplotlib for a loss curve")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    epochs = range(1, len(history["loss"]) + 1)
    axes.plot(epochs, history["loss"], label="training")
    axes.plot(epochs, history["val_loss"], label="held out")
    axes.set(xlabel="epoch", ylabel="masked cross-entropy (nats)")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    _say("Plot", path)


def _save_and_reload(model, path, answers):
    model.save_to_preset(path)
    again = MaskedLM.from_preset(path).fill_mask(list(SENTENCES), top_k=3)
    same = all(
        [token for token, _ in a[0]] == [token for token, _ in b[0]]
        for a, b in zip(answers, again, strict=True)
    )
    if not same:
        raise RuntimeError(f"The reloaded model answers {again}, not {answers}.")
    _say("Saved", f"{path}; reloaded with MaskedLM.from_preset, it answers the same")


def _serve(model, path, answers):
    os.makedirs(path, exist_ok=True)
    version = 1 + max((int(n) for n in os.listdir(path) if n.isdigit()), default=0)
    path = export_saved_model(model, os.path.join(path, str(version)))
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, path, json.dumps(SENTENCES)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"The SavedModel doesn't answer:\n{done.stderr}")
    served = json.loads(done.stdout.splitlines()[-1])
    expected = [slot[0][0] for [slot] in answers]
    if served != expected:
        raise RuntimeError(f"The SavedModel answers {served}, not {expected}.")
    _say(
        "Served", f"{path}; a process with only tensorflow answers {', '.join(served)}"
    )
