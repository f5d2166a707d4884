"""Pre-train mmBERT in three phases: longer rows, fewer masks, more languages.

    python pretrain_mmbert.py my_mmbert en='en/*.txt' is='is/*.txt' fo='fo/*.txt'

The first phase has the first half of the languages, the second all but the last, and
the third all, in each mixed more evenly. Killed and called again, it goes on. The files
have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

import dataclasses
import shutil
from typing import Annotated

import typer

from keras_bertfam import layers, models, tasks, tokenizers
from keras_bertfam.cli.runs import SHAPES


def main(
    output: Annotated[str, typer.Argument(help="Folder to write.")],
    files: Annotated[list[str], typer.Argument(help="LANGUAGE=FILES, two or more.")],
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "mini",
    vocabulary_size: Annotated[int, typer.Option(help="Tokens to learn.")] = 16000,
    lengths: Annotated[tuple[int, int], typer.Option(help="Of rows.")] = (1024, 8192),
    tokens: Annotated[int, typer.Option(help="Of a batch.")] = 16384,
    steps: Annotated[int, typer.Option(help="Updates of all phases.")] = 3000,
):
    """Pre-train mmBERT."""
    patterns = dict(each.split("=", 1) for each in files if "=" in each)
    if len(patterns) < 2 or len(patterns) != len(files):
        raise typer.BadParameter(f"Expected LANGUAGE=FILES twice or more: {files}.")
    corpora = {n: layers.read_documents(pattern) for n, pattern in patterns.items()}
    recipe = tasks.pretraining_recipe("mmbert")
    documents = layers.sample_corpora(corpora, recipe.mix_exponent)
    tokenizer = tokenizers.train_byte_pair(documents, vocabulary_size, family="mmbert")
    layers_, width = SHAPES[size]
    shape = {"num_layers": layers_, "hidden_dim": width, "num_heads": width // 64}
    shape |= {"intermediate_dim": 3 * width // 2, **recipe.backbone_arguments}
    backbone = models.MmBertBackbone(tokenizer.vocabulary_size(), **shape)
    preprocessor = tasks.MaskedLMPreprocessor(tokenizer, lengths[0], **recipe.masking)
    model = tasks.MaskedLM(backbone, preprocessor)
    names = [*patterns]
    languages = (names[: (len(names) + 1) // 2], names[:-1], names)
    phases = tasks.pretraining_phases("mmbert", total_steps=steps)
    for k, length in enumerate((lengths[0], lengths[1], lengths[1])):
        changes = {"sequence_length": length, "batch_size": max(1, tokens // length)}
        phases[k] = dataclasses.replace(phases[k], languages=languages[k], **changes)
    backup = f"{output}-backup"
    model = tasks.train_in_phases(model, documents, phases, backup)
    model.save_to_preset(output)
    shutil.rmtree(backup)
    return model


if __name__ == "__main__":
    typer.run(main)
