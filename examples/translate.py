"""Learn to translate from nothing but pairs of sentences.

    python translate.py train.de train.en --validation val.de val.en --output my_model

Two files, of which each line of one is the translation of that line of the other; their
vocabulary is learned from both. `--preset` goes on from a pre-trained model in place of
new weights, such as what `pretrain_t5.py` wrote. BLEU and chrF are of the extra
`evaluation`. Set KERAS_BACKEND to choose the backend.
"""

from typing import Annotated

import keras
import typer

import keras_bertfam


def read_pairs(source, target, limit=None):
    """Lists of as many lines of two files."""
    sides = []
    for path in (source, target):
        with open(path, encoding="utf-8-sig") as file:
            # `splitlines` would cut at other characters, too.
            sides.append([line.rstrip("\n") for line in file])
    if not sides[0] or len(sides[0]) != len(sides[1]):
        raise typer.BadParameter(
            f"{source} and {target} must have as many lines, one or more. Received: "
            f"{len(sides[0])} and {len(sides[1])}."
        )
    return [side[:limit] for side in sides]


def make_model(source, target, vocabulary_size, length, layers, width):
    """A small T5 with new weights, and a vocabulary of both languages."""
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        [source, target], vocabulary_size, family="t5"
    )
    preprocessor = keras_bertfam.tasks.TextToTextPreprocessor(tokenizer, length)
    backbone = keras_bertfam.models.T5Backbone(
        tokenizer.vocabulary_size(),
        num_layers=layers,
        num_heads=max(1, width // 64),
        hidden_dim=width,
        intermediate_dim=4 * width,
    )
    return keras_bertfam.tasks.TextToText(backbone, preprocessor, label_smoothing=0.1)


def main(
    source: Annotated[str, typer.Argument(help="File of sentences.")],
    target: Annotated[str, typer.Argument(help="File of their translations.")],
    validation: Annotated[tuple[str, str], typer.Option(help="Two more files.")],
    output: Annotated[str, typer.Option(help="Preset directory to write.")],
    preset: Annotated[str | None, typer.Option(help="Preset to go on from.")] = None,
    vocabulary_size: int = 6000,
    length: Annotated[int, typer.Option(help="Tokens of a sentence.")] = 48,
    layers: int = 3,
    width: int = 256,
    epochs: int = 5,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    limit: Annotated[int | None, typer.Option(help="Only so many pairs.")] = None,
    seed: int = 0,
):
    """Train on pairs, and score what is written for others."""
    keras.utils.set_random_seed(seed)
    train, held_out = read_pairs(source, target, limit), read_pairs(*validation, limit)
    if preset is None:
        model = make_model(source, target, vocabulary_size, length, layers, width)
    else:
        model = keras_bertfam.tasks.TextToText.from_preset(preset)
        model.preprocessor = keras_bertfam.tasks.TextToTextPreprocessor(
            model.preprocessor.tokenizer, length
        )
    steps = epochs * -(-len(train[0]) // batch_size)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=learning_rate, warmup_steps=steps // 10
    )
    model.compile(keras_bertfam.optimizers.AdamW(schedule, beta_2=0.98, clipnorm=1.0))
    data = model.preprocessor.dataset(tuple(train), batch_size)
    validated = model.preprocessor.dataset(tuple(held_out), batch_size, training=False)
    model.fit(data, epochs=epochs, validation_data=validated, verbose=2)
    model.save_to_preset(output)
    written = []
    for start in range(0, len(held_out[0]), batch_size):
        written += model.generate(held_out[0][start : start + batch_size], length)
    for text, ours in list(zip(held_out[0], written, strict=True))[:5]:
        print(f"{text}\n  {ours}")
    scores = keras_bertfam.metrics.compute_metrics(
        ("bleu", "chrf"), held_out[1], written
    )
    print(", ".join(f"{name} {score:.1f}" for name, score in scores.items()))
    return scores


if __name__ == "__main__":
    typer.run(main)
