"""Pre-train DeBERTa: find replaced tokens, as version 3, or predict masked ones.

    python pretrain_deberta.py my_deberta 'corpus/*.txt' --size small
    python pretrain_deberta.py my_deberta 'corpus/*.txt' --objective mlm

With `mlm` it has the enhanced mask decoder, as the first two versions. The files have
blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

from typing import Annotated, Literal

import typer

from keras_bertfam import layers, models, optimizers, tasks, tokenizers
from keras_bertfam.cli.runs import SHAPES


def main(
    output: Annotated[str, typer.Argument(help="Folder to write.")],
    files: Annotated[list[str], typer.Argument(help="Text files, or patterns.")],
    objective: Annotated[Literal["rtd", "mlm"], typer.Option()] = "rtd",
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "mini",
    vocabulary_size: Annotated[int, typer.Option(help="Tokens to learn.")] = 8000,
    length: Annotated[int, typer.Option(help="Of rows.")] = 128,
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 32,
    steps: Annotated[int, typer.Option(help="Updates.")] = 2000,
    learning_rate: Annotated[float, typer.Option(help="Peak.")] = 1e-3,
):
    """Pre-train DeBERTa."""
    documents = layers.read_documents(files)
    tokenizer = tokenizers.train_sentence_piece(
        documents, vocabulary_size, family="deberta-v2"
    )
    layers_, width = SHAPES[size]
    backbone = models.DebertaV2Backbone(
        tokenizer.vocabulary_size(),
        num_layers=layers_,
        num_heads=max(1, width // 64),
        hidden_dim=width,
        intermediate_dim=4 * width,
    )
    recipe = tasks.pretraining_recipe("deberta-v2")
    if objective == "rtd":
        preprocessor = tasks.ReplacedTokenDetectionPreprocessor(
            tokenizer, length, **recipe.masking
        )
        model = tasks.ReplacedTokenDetection(backbone, preprocessor)
    else:
        preprocessor = tasks.MaskedLMPreprocessor(
            tokenizer, length, strategy="ngram_windows"
        )
        model = tasks.MaskedLM(backbone, preprocessor, decoder_positions=length)
    arguments = recipe.optimizer_arguments() | {"total_steps": steps}
    arguments["learning_rate"] = learning_rate
    model.compile(optimizers.pretraining_optimizer(**arguments))
    data = preprocessor.dataset(documents, batch_size)
    model.fit(data.repeat(), steps_per_epoch=steps)
    model.save_to_preset(output)
    return model


if __name__ == "__main__":
    typer.run(main)
