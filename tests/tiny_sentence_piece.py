"""A real SentencePiece model, small enough to be trained anywhere."""

import io

import sentencepiece

SPECIALS = ["<cls>", "<sep>", "<pad>", "<mask>"]


def train_sentence_piece(texts, symbols=(), **options):
    """The content of a `spiece.model` with XLNet's special tokens."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        hard_vocab_limit=False,
        user_defined_symbols=[*SPECIALS, *symbols],
        **options,
    )
    return model.getvalue()
