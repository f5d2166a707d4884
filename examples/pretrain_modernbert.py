"""Pre-train ModernBERT in its two phases: rows of 1,024 tokens, and then of 8,192.

    python pretrain_modernbert.py my_modernbert 'corpus/*.txt' --size small

The second phase has another base of rotary positions where all tokens are seen, and
ends with the decay of the rate. The files have blank lines between documents. Set
KERAS_BACKEND to choose the backend.
"""

from typing import Annotated

import typer

from keras_bertfam import layers, models, optimizers, tasks, tokenizers
from keras_bertfam.cli.runs import SHAPES


def main(
    output: Annotated[str, typer.Argument(help="Folder to write.")],
    files: Annotated[list[str], typer.Argument(help="Text files, or patterns.")],
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "mini",
    vocabulary_size: Annotated[int, typer.Option(help="Tokens to learn.")] = 8000,
    lengths: Annotated[tuple[int, int], typer.Option(help="Of rows.")] = (1024, 8192),
    tokens: Annotated[int, typer.Option(help="Of a batch.")] = 16384,
    steps: Annotated[tuple[int, int], typer.Option(help="Updates.")] = (2000, 200),
    learning_rate: Annotated[float, typer.Option(help="Peak of the first.")] = 1e-3,
):
    """Pre-train ModernBERT."""
    documents = layers.read_documents(files)
    tokenizer = tokenizers.train_byte_pair(
        documents, vocabulary_size, family="modernbert"
    )
    recipe = tasks.pretraining_recipe("modernbert")
    layers_, width = SHAPES[size]
    shape = {"num_layers": layers_, "hidden_dim": width, "num_heads": width // 64}
    shape |= {"vocabulary_size": vocabulary_size, "intermediate_dim": 3 * width // 2}
    model = None
    phases = zip((recipe, *recipe.phases), lengths, steps, strict=True)
    for phase, length, count in phases:
        preprocessor = tasks.MaskedLMPreprocessor(tokenizer, length, **phase.masking)
        changes = phase.backbone_arguments
        if model is None:
            backbone = models.ModernBertBackbone(**shape, **changes)
            model = tasks.MaskedLM(backbone, preprocessor)
        else:
            model = tasks.MaskedLM.from_preset(
                output, backbone_arguments=changes, preprocessor=preprocessor
            )
        arguments = phase.optimizer_arguments() | {"total_steps": count}
        arguments["learning_rate"] *= learning_rate / recipe.learning_rate
        model.compile(optimizers.pretraining_optimizer(**arguments))
        data = preprocessor.dataset(documents, batch_size=max(1, tokens // length))
        model.fit(data.repeat(), steps_per_epoch=count)
        model.save_to_preset(output)
    return model


if __name__ == "__main__":
    typer.run(main)
