"""SentencePiece files are read and written without the classes of `sentencepiece`."""

import io

import sentencepiece

from keras_bertfam.presets.tokenizer_formats.piece_models import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    PieceModel,
)


def test_a_trained_model():
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a rose is a rose"] * 4),
        model_writer=file,
        vocab_size=12,
        user_defined_symbols=["<x>"],
        minloglevel=2,
    )
    model = PieceModel()
    model.ParseFromString(file.getvalue())
    # What isn't described is kept, in an order of its own.
    assert sorted(model.SerializeToString()) == sorted(file.getvalue())
    kinds = {piece.piece: piece.type for piece in model.pieces}
    assert [kinds[name] for name in ("<unk>", "<s>", "<x>")] == [
        UNKNOWN,
        CONTROL,
        USER_DEFINED,
    ]
    assert model.trainer_spec.unk_id == 0
    assert model.normalizer_spec.precompiled_charsmap
    model.pieces.add(piece="rosebud", score=-2.5, type=NORMAL)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    assert theirs.id_to_piece(12) == "rosebud"
    assert theirs.get_score(12) == -2.5
    assert theirs.id_to_piece(2) == "</s>"
