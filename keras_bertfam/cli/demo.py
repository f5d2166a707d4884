"""Run the demonstration: the whole job, on text that comes with Python."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import keras
import numpy as np
import typer

from keras_bertfam.analysis import plots
from keras_bertfam.cli import building, pretraining
from keras_bertfam.cli.inputs import backup_folder
from keras_bertfam.cli.reproduce.measures import (
    PACKAGES,
    docstring_parts,
    masked_tokens,
)
from keras_bertfam.cli.runs import PretrainingRun, with_recipe
from keras_bertfam.corpus import python_documentation
from keras_bertfam.export import export_saved_model
from keras_bertfam.tasks import MaskedLM, TextClassifier
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text

SENTENCES = (
    "[MASK] the object is not found , an exception is raised .",
    "the default [MASK] of the argument is none .",
    "the [MASK] of the list is returned .",
)
# The code of a client: it needs neither keras nor keras_bertfam.
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
    words = sum(len(text.split()) for text in texts)
    _say("Text", f"{len(texts)} documents of Python's documentation, {words:,} words;")
    _say("", f"{len(texts[::10])} documents are held out")
    paths = write_documentation(output)
    preset = os.path.join(output, "preset")
    chosen = {
        "files": (paths[0],),
        "validation": (paths[1],),
        "output": preset,
        "objective": "mlm",
        "size": "bert_l4_h128_en_uncased",
        "vocabulary_size": 2000,
        "batch_size": 32,
        "epochs": epochs,
        # The model is narrow, so initial weights are larger than BERT's: 0.05 *
        # sqrt(128) is about 0.02 * sqrt(768).
        "learning_rate": 2e-3,
        "backbone_arguments": {"num_heads": 4, "initializer_range": 0.05},
        # A prediction over so small a vocabulary costs little: twice the paper's masks
        # teach more per minute.
        "preprocessor_arguments": {"mask_selection_rate": 0.3},
    }
    run = PretrainingRun(**with_recipe("quick", chosen))
    shutil.rmtree(backup_folder(run), ignore_errors=True)
    _say(
        "Training",
        f"a BERT of 4 layers, width 128, with {keras.backend.backend()}: {epochs} "
        "epochs, after a vocabulary and, at the first step, its compilation",
    )
    run, documents = pretraining.begin(run)
    model = building.build(run, documents)
    history = pretraining.train(run, model, documents).history
    answers = model.fill_mask(list(SENTENCES), top_k=3)
    _report_accuracy(model, pretraining.read(run, run.validation))
    _plot(history, os.path.join(output, "training.png"))
    for sentence, [slot] in zip(SENTENCES, answers, strict=True):
        best = ", ".join(f"{token} {probability:.2f}" for token, probability in slot)
        _say("Mask", f"{sentence}  ->  {best}")
    _reload(preset, answers)
    _serve(model, os.path.join(output, "served"), answers)
    classifier = os.path.join(output, "classifier")
    _classify(preset, classifier)
    _say("Next", "commands to try now:")
    python = min(os.path.relpath(sys.executable), sys.executable, key=len)
    for command in (
        f"echo '{SENTENCES[0]}' | {python} -m keras_bertfam fill-mask {preset}",
        f"echo 'Parse a message.' | {python} -m keras_bertfam predict {classifier}",
        f"{python} -m keras_bertfam pretrain 'corpus/*.txt' --output my_bert",
    ):
        typer.echo(f"{'':10s}{command}")


def _say(title, text):
    for i, line in enumerate(textwrap.wrap(text, 76) or [""]):
        typer.echo(f"{title if i == 0 else '':10s}{line}")


def _report_accuracy(model, held_out):
    """Report how many masked tokens are right, and the words that are surest."""
    tokenizer = model.preprocessor.tokenizer
    length = model.preprocessor.sequence_length
    found = masked_tokens(model, tokenizer, held_out, length)
    targets, guesses = found.targets, found.guesses
    _say(
        "Held out",
        f"masked accuracy {found.accuracy:.1%}, against "
        f"{np.bincount(targets).max() / len(targets):.1%} for always guessing their "
        "most frequent token",
    )
    words = tokenizer.get_vocabulary()
    order = np.argsort(-found.certainty)
    surest = [k for k in order if _is_word(words[guesses[k]])]
    if not surest:  # a model that has learned little says "the" everywhere
        return
    surest = surest[: max(1, len(surest) // 10)]
    right = [words[guesses[k]] for k in surest if guesses[k] == targets[k]]
    _say(
        "",
        f"of its surest tenth of longer words {len(right) / len(surest):.0%} are right:"
        f" {', '.join([*dict.fromkeys(right)][:12])}",
    )


def _is_word(token):
    return len(token) > 3 and token.isalpha()


def _plot(history, path):
    try:
        plots.history(history, path)
    except ImportError:
        _say("Plot", "skipped: pip install 'keras-bertfam[analysis]' for its curves")
    else:
        _say("Plot", f"{path}: loss and metrics, in training and held out")


def _reload(path, answers):
    again = MaskedLM.from_preset(path).fill_mask(list(SENTENCES), top_k=3)
    same = all(
        [token for token, _ in a[0]] == [token for token, _ in b[0]]
        for a, b in zip(answers, again, strict=True)
    )
    if not same:
        raise RuntimeError(f"The reloaded model answers {again}, not {answers}.")
    _say("Saved", f"{path}; reloaded with MaskedLM.from_preset, it answers the same")


def _classify(preset, path):
    """Fine-tune a classifier that tells which package a docstring is from."""
    (held_out, labels), (train, train_labels) = docstring_parts()
    model = TextClassifier.from_preset(preset, label_names=PACKAGES)
    model.compile(learning_rate=1e-3)
    model.fit(train, train_labels, batch_size=16, epochs=3, verbose=0)
    accuracy = model.evaluate(held_out, labels, return_dict=True, verbose=0)["accuracy"]
    model.save_to_preset(path)
    count = len(labels)
    most = max(labels.count(package) for package in PACKAGES) / count
    _say(
        "Use",
        f"fine-tuned on {len(train)} docstrings to tell which of {len(PACKAGES)} "
        f"packages they are from: {accuracy:.0%} of {count} others right, against "
        f"{most:.0%} for always guessing the most frequent; in {path}",
    )
    [(label, probability), *_] = model.classify("Parse the headers of a message.")
    _say("", f"'Parse the headers of a message.'  ->  {label} {probability:.2f}")


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


def write_documentation(folder: Path) -> tuple[str, str]:
    """Write Python's documentation to `train.txt` and `held_out.txt`.

    Args:
        folder: an existing folder.

    Returns:
        The paths of the two files. Every tenth document is held out.
    """
    texts = python_documentation()
    parts = {
        "train.txt": [text for i, text in enumerate(texts) if i % 10],
        "held_out.txt": texts[::10],
    }
    for name, documents in parts.items():
        write_text(os.path.join(folder, name), "\n\n".join(documents) + "\n")
    train, held_out = (os.path.join(folder, name) for name in parts)
    return train, held_out
