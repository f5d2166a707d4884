"""Pre-train SpanBERT on your own text: python pretrain_spanbert.py 'corpus/*.txt'.

The files have blank lines between documents. Set KERAS_BACKEND to choose the backend.
"""

import argparse

import keras_bertfam


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", help="text files")
    parser.add_argument("--output", default="my_spanbert", help="the preset's folder")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help="of the hidden states")
    parser.add_argument("--vocabulary_size", type=int, default=8000)
    parser.add_argument("--sequence_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--reduction", default="per_token", help="or separate")
    options = parser.parse_args(arguments)

    documents = keras_bertfam.layers.read_documents(options.pattern)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(
        documents, options.vocabulary_size, lowercase=False
    )
    preprocessor = keras_bertfam.tasks.SpanBoundaryLMPreprocessor(
        tokenizer, sequence_length=options.sequence_length, seed=0
    )
    backbone = keras_bertfam.models.SpanBertBackbone(
        tokenizer.vocabulary_size(),
        num_layers=options.layers,
        num_heads=max(1, options.width // 64),
        hidden_dim=options.width,
        intermediate_dim=4 * options.width,
    )
    model = keras_bertfam.tasks.SpanBoundaryLM(
        backbone, preprocessor, reduction=options.reduction
    )
    model.compile(learning_rate=options.learning_rate)
    data = preprocessor.dataset(documents, batch_size=options.batch_size)
    model.fit(data, epochs=options.epochs)
    model.save_to_preset(options.output)
    return model


if __name__ == "__main__":
    main()
