"""Tokenizers of files that are no preset, with the ids of the libraries they are of."""

import io
import json
import pathlib
import shutil

import pytest
import sentencepiece
import tensorflow as tf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.huggingface import open_source
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.tokenizer_formats.piece_models import PieceModel
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import load_tokenizer
from keras_bertfam.presets.tokenizer_formats.tokenizer_sources import (
    check_family,
    open_tokenizer,
)
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from keras_bertfam.tokenizers.training import BYTE_PAIR, SENTENCE_PIECE
from tests.tiny_preset import make

TEXTS = ["A cat sat.", "the Café's mat,  at 10 o'clock", "cats & dogs: ÜBER alles"]
CORPUS = [*TEXTS, "a cat sat on the mat", "cats and dogs sat at the old café"] * 20
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"act.'&:,sdogmuehblx", "cat"]
WORDS += ["##s", "##a", "##t", "the", "sat", "mat", "cafe", "Cafe", "café", "A"]
BY_KIND = {
    kind: [n for n, r in FAMILIES.items() if r.tokenizer == kind and r.sizes]
    for kind in ("word_piece", "byte_pair", "sentence_piece")
}


def ids(tokenizer, texts=TEXTS):
    dataset = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    return next(iter(dataset)).to_list()


def their_ids(tokenizer, texts=TEXTS):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def write(folder, **contents):
    """Files of JSON."""
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")


def word_piece(lowercase, vocabulary=WORDS):
    """`tokenizers`' own."""
    numbers = {word: k for k, word in enumerate(vocabulary)}
    made = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(vocabulary[:5])
    return made


def byte_pair(family):
    """One that `tokenizers` has trained, with the special tokens of a family."""
    forms = {"openai-gpt": "gpt", "longformer": "roberta", "ettin": "modernbert"}
    forms["modernbert-decoder"] = "modernbert"
    form = forms.get(family, family)
    _, first, last, word_end = BYTE_PAIR[form]
    suffix = {"end_of_word_suffix": word_end} if word_end else {}
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", **suffix))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    if word_end:
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer, letters = pre_tokenizers.BertPreTokenizer(), []
    if form == "modernbert":
        made.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[*first], initial_alphabet=letters, **suffix
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_special_tokens([*last])
    return made


def pieces(family, folder):
    """A model that `sentencepiece` has trained, and what a family does before it."""
    _, numbers, control, symbols = SENTENCE_PIECE[family]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for text in CORPUS] + CORPUS),
        model_writer=model,
        hard_vocab_limit=False,
        vocab_size=120,
        control_symbols=control,
        user_defined_symbols=symbols,
        **numbers,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def cleaned(text, lowercase, keep_accents):
    if not keep_accents:
        steps = [normalizers.NFKD(), normalizers.StripAccents()]
        text = normalizers.Sequence(steps).normalize_str(text)
    return text.lower() if lowercase else text


def unigram(folder, before):
    """The JSON of the model in a folder, as `transformers` makes it."""
    proto = PieceModel()
    proto.ParseFromString((folder / "spiece.model").read_bytes())
    vocabulary = [(piece.piece, piece.score) for piece in proto.pieces]
    unknown = proto.trainer_spec.unk_id
    made = tokenizers.Tokenizer(models.Unigram(vocabulary, unknown))
    table = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    made.normalizer = normalizers.Sequence([*before, table])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    kept = [p.piece for p in proto.pieces if p.type == 3]
    made.add_special_tokens(kept)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces(lowercase, tmp_path):
    theirs = word_piece(lowercase)
    expected = their_ids(theirs)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    theirs.save(str(tmp_path / "tokenizer.json"))
    # Whose it is doesn't matter: all families of the kind have the same, but MPNet.
    for family in (None, *{*BY_KIND["word_piece"]} - {"mpnet"}):
        for path in (tmp_path, tmp_path / "tokenizer.json"):
            ours = load_given_tokenizer(path, family)
            assert type(ours).__name__ == "BertTokenizer"
            assert ours.lowercase is lowercase
    assert ids(ours) == expected
    (tmp_path / "tokenizer.json").unlink()
    # A vocabulary with capitals keeps case, unless something else is said.
    path = tmp_path / "vocab.txt"
    assert not load_given_tokenizer(path).lowercase
    write(tmp_path, tokenizer_config={"do_lower_case": lowercase})
    for place in (path, tmp_path):
        ours = load_given_tokenizer(place)
        assert ours.lowercase is lowercase
    assert ids(ours) == expected


def test_a_vocabulary_without_capitals_is_lower_cased(tmp_path):
    path = tmp_path / "my own-vocab.txt"
    words = [w for w in WORDS if w.startswith("[") or w == w.lower()]
    path.write_text("\n".join([*words, "[unused0]"]), "utf-8")
    ours = load_given_tokenizer(path)
    assert ours.lowercase and ids(ours) == their_ids(word_piece(True, words))


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        # The others have one of these families' class.
        pytest.param(name, marks=pytest.mark.slow)
        if name in ("bart", "longformer")
        else name
        for name in BY_KIND["byte_pair"]
        if name not in ("mmbert", "xlm")  # test_gemma.py; XLM's tokenizer isn't here
    ],
)
def test_byte_pairs(family, tmp_path):
    theirs = byte_pair(family)
    expected = their_ids(theirs)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_given_tokenizer(tmp_path / "tokenizer.json", family)
    assert type(ours).__name__ == FAMILIES[family].tokenizer_class
    assert ids(ours) == expected
    record = FAMILIES[family]
    table = record.transformers or FAMILIES[record.reads[0]].transformers
    named = f"{table.title}TokenizerFast"
    write(tmp_path, tokenizer_config={"tokenizer_class": named})
    assert type(load_given_tokenizer(tmp_path)) is type(ours)
    (tmp_path / "tokenizer.json").unlink()
    theirs.model.save(str(tmp_path))
    numbers = theirs.get_vocab()  # with those that were added
    (tmp_path / "vocab.json").write_text(json.dumps(numbers), "utf-8")
    for path in (tmp_path, tmp_path / "vocab.json"):
        again = load_given_tokenizer(path)
        assert type(again) is type(ours) and again.vocabulary == ours.vocabulary
        assert [*again.merges] == [*ours.merges]
        assert again.add_prefix_space == ours.add_prefix_space


@pytest.mark.slow
def test_a_space_before_a_text(tmp_path):
    theirs = byte_pair("roberta")
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert ids(load_given_tokenizer(tmp_path, "roberta")) == their_ids(theirs)
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, tokenizer_config={"add_prefix_space": True})
    assert load_given_tokenizer(tmp_path, "roberta").add_prefix_space
    byte_pair("openai-gpt").save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="must add no space before a text, as a GPT"):
        load_given_tokenizer(tmp_path, "openai-gpt")


# Those in fairseq's order have tests of their own.
OWN_ORDER = [n for n in BY_KIND["sentence_piece"] if n in ("albert", "t5", "xlnet")]


@pytest.mark.slow
@pytest.mark.parametrize("family", OWN_ORDER)
@pytest.mark.parametrize(("lowercase", "keep_accents"), [(True, False), (False, True)])
def test_sentence_pieces(family, lowercase, keep_accents, tmp_path):
    model = pieces(family, tmp_path)
    config = {"do_lower_case": lowercase, "keep_accents": keep_accents}
    if family == "t5":
        config = {"extra_ids": 7}
        lowercase, keep_accents = False, True
    texts = [cleaned(text, lowercase, keep_accents) for text in TEXTS]
    expected = model.encode(texts)
    shutil.copy(tmp_path / "spiece.model", tmp_path / "my own.model")
    title = FAMILIES[family].transformers.title
    write(tmp_path, tokenizer_config={"tokenizer_class": f"{title}Tokenizer", **config})
    ours = load_given_tokenizer(tmp_path)
    assert type(ours).__name__ == FAMILIES[family].tokenizer_class
    assert ids(ours) == expected
    assert getattr(ours, "sentinels", 7) == 7
    assert load_given_tokenizer(tmp_path / "my own.model").proto == ours.proto
    # As the JSON of `tokenizers`, which states the settings.
    steps = [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lowercase else []
    theirs = unigram(tmp_path, steps)
    path = tmp_path / "alone"
    path.mkdir()
    theirs.save(str(path / "tokenizer.json"))
    again = load_given_tokenizer(path / "tokenizer.json", family)
    assert (again.lowercase, again.keep_accents) == (lowercase, keep_accents)
    assert ids(again) == their_ids(theirs) == expected


def test_what_says_whose_a_tokenizer_is(tmp_path):
    pieces("xlnet", tmp_path)
    path = tmp_path / "spiece.model"

    def family(path=path, given=None):
        return open_tokenizer(path, given).family

    with pytest.raises(ValueError, match="`family` must be one of .*'albert'.* 't5', "):
        family()
    for wrong in ("bert", "roberta", "elmo"):
        with pytest.raises(ValueError, match=f"Received: '{wrong}'"):
            family(given=wrong)
    with pytest.raises(ValueError, match="`family` must be one of .* 'no family'"):
        family(given="no family")
    assert family(given="albert") == "albert"
    with pytest.raises(ValueError, match="special token.* `AlbertTokenizer`"):
        load_given_tokenizer(path, "albert")
    write(tmp_path, config={"model_type": "xlnet"})
    assert family() == family(given="bert") == "xlnet"
    write(tmp_path, config={"model_type": ["odd"]})
    assert family(given="albert") == "albert"
    # The tokenizer's own class says more than the model's type and the option.
    write(tmp_path, config={"model_type": "albert"})
    write(tmp_path, tokenizer_config={"tokenizer_class": "XLNetTokenizer"})
    assert family() == family(given="bert") == "xlnet"
    write(tmp_path, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    assert family(given="xlnet") == "albert"
    write(tmp_path, tokenizer_config={"tokenizer_class": "RobertaTokenizerFast"})
    with pytest.raises(ValueError, match="'tokenizer_config.json' .* 'RobertaTokeniz"):
        family()
    with pytest.raises(
        ValueError, match="`family` must be one whose .* AlbertTokenize"
    ):
        check_family(make().preprocessor.tokenizer, "albert", "x")


def test_families_that_share_a_class_of_transformers(tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    for said, given, expected in [
        ("Roberta", None, "roberta"),
        ("Roberta", "bart", "bart"),  # as `transformers` 5 saves BART's
        ("Roberta", "gpt2", "roberta"),
        ("Roberta", "bert", "roberta"),
        ("GPT2", "openai-gpt", "gpt2"),
    ]:
        write(tmp_path, tokenizer_config={"tokenizer_class": f"{said}Tokenizer"})
        assert open_tokenizer(tmp_path, given).family == expected
    write(tmp_path, config={"model_type": "bart"}, tokenizer_config={})
    assert open_tokenizer(tmp_path / "vocab.json").family == "bart"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mask_token": "<mask>"}, r"mask_token='\[MASK\]'.* Received: '<mask>'"),
        ({"cls_token": {"content": "<s>"}}, r"cls_token='\[CLS\]'"),
        (
            {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"},
            "do_lower_case=True, .* Received: False",
        ),
        ({"do_basic_tokenize": False}, "do_basic_tokenize=True"),
        ({"added_tokens_decoder": {"99": {"content": "[NEW]"}}}, r"have the id.* 99"),
        (
            {"added_tokens_decoder": {"4": {"content": "[CLS]"}}},
            r"'\[CLS\]' .*id 2.* 4",
        ),
        (
            {"tokenizer_class": "RobertaTokenizer"},
            "kind 'word_piece'.*: 'RobertaTokeni",
        ),
    ],
)
def test_what_is_said_beside_a_file_and_is_not_so(config, message, tmp_path):
    word_piece(True).save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, tokenizer_config={"mask_token": "[MASK]", "pad_token": "[PAD]"})
    assert load_given_tokenizer(tmp_path).lowercase
    write(tmp_path, tokenizer_config=config)
    with pytest.raises(ValueError, match=f"tokenizer_config.json' .*must.*{message}"):
        load_given_tokenizer(tmp_path)


def their_steps(folder, **steps):
    """Write a `tokenizer.json` of other tokens and steps beside a `vocab.txt`."""
    swapped = [*WORDS[:-1], "cat"]
    swapped[WORDS.index("cat")] = "A"
    made = word_piece(True, swapped)
    for name, step in steps.items():
        setattr(made, name, step)
    made.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    write(folder, config={"model_type": "bert"})
    return made


@pytest.mark.parametrize("cls", ["PreTrainedTokenizerFast", "BertTokenizer"])
def test_a_tokenizer_json_comes_first(cls, tmp_path):
    digits = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(), pre_tokenizers.BertPreTokenizer()]
    )
    keeps = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    theirs = their_steps(tmp_path, pre_tokenizer=digits, normalizer=keeps)
    told = {"tokenizer_class": cls, "do_lower_case": True}
    write(tmp_path, tokenizer_config=told)
    if cls == "BertTokenizer":  # whose flags count, and by default strip accents
        theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
    texts = [*TEXTS, "a1cat", "cat" * 34]
    assert ids(load_given_tokenizer(tmp_path), texts) == their_ids(theirs, texts)


@pytest.mark.parametrize("cls", [None, "RobertaTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_space_before_a_text_by_class(cls, alone, tmp_path):
    made = byte_pair("roberta")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.save(str(tmp_path / "tokenizer.json"))
    if not alone:
        made.model.save(str(tmp_path))
    told = {"tokenizer_class": cls} if cls else {"model_max_length": 16}
    write(tmp_path, tokenizer_config=told, config={"model_type": "roberta"})
    if cls != "PreTrainedTokenizerFast":  # the class's own default
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert ids(load_given_tokenizer(tmp_path)) == their_ids(made)


def test_pieces_of_another_model_are_refused(tmp_path):
    file = tmp_path / "tokenizer.json"
    pieces("albert", tmp_path)
    unigram(tmp_path, []).save(str(file))
    content = json.loads(file.read_text("utf-8"))
    write(tmp_path, config={"model_type": "albert"})
    load_given_tokenizer(tmp_path)
    vocabulary = content["model"]["vocab"]
    vocabulary[7], vocabulary[8] = vocabulary[8], vocabulary[7]
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match="the same pieces.*for the id 7: "):
        load_given_tokenizer(tmp_path)


@pytest.mark.slow
def test_settings_of_vocab_txt_that_no_tokenizer_here_has(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    write(tmp_path, tokenizer_config={"strip_accents": False, "do_lower_case": True})
    ours = load_given_tokenizer(tmp_path / "vocab.txt")
    theirs = word_piece(True)
    theirs.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    assert ids(ours) == their_ids(theirs) != their_ids(word_piece(True))
    write(tmp_path, tokenizer_config={"tokenizer_class": "BertJapaneseTokenizer"})
    with pytest.raises(ValueError, match="tokenizer_class .*'BertJapaneseTokenizer'"):
        load_given_tokenizer(tmp_path / "vocab.txt")
    write(tmp_path, tokenizer_config={"added_tokens_decoder": ["odd"]})
    with pytest.raises(ValueError, match="can't be read; .*damaged"):
        load_given_tokenizer(tmp_path / "vocab.txt")
    write(tmp_path, tokenizer_config={}, added_tokens={"[NEW]": 99})
    with pytest.raises(ValueError, match=r"'\[NEW\]' in .*added_tokens.json' must"):
        load_given_tokenizer(tmp_path / "vocab.txt")


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("own", [True, False])
def test_a_pipeline_beside_a_vocabulary(family, own, tmp_path):
    """Its steps count where a vocabulary's files can't say them."""
    steps = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    if family == "bert":
        theirs = word_piece(True)
        words = pre_tokenizers.WhitespaceSplit()
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    else:
        theirs = byte_pair(family)
        digits = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        words = pre_tokenizers.Sequence([digits, byte_level])
        theirs.model.save(str(tmp_path))
    if own:
        theirs.normalizer, theirs.pre_tokenizer = steps, words
    theirs.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, config={"model_type": family})
    texts = [*TEXTS, "ｃafe 1234 THE"]
    ours = load_tokenizer(open_source(tmp_path))
    assert ids(ours, texts) == their_ids(theirs, texts)
    alone = load_given_tokenizer(tmp_path / "tokenizer.json", family)
    assert ids(alone, texts) == ids(ours, texts)


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_spaces_of_unigrams(scheme, tmp_path):
    """With tokens within texts, "first" would begin the text after them otherwise."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "▁b"]
    pieces += [f"<extra_id_{number}>" for number in range(100)]
    scores = [(piece, -float(number)) for number, piece in enumerate(pieces)]
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=2))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    theirs.add_special_tokens(["<pad>", "</s>", "<unk>"])
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    with pytest.raises(ValueError, match="a step that joins runs of spaces"):
        load_given_tokenizer(path, "t5")
    theirs.normalizer = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    theirs.save(str(path))
    texts = ["a b", "a  b", "b   a b"]
    assert ids(load_given_tokenizer(path, "t5"), texts) == their_ids(theirs, texts)
    theirs.add_tokens(["<e>"])
    theirs.save(str(path))
    if scheme == "first":
        with pytest.raises(ValueError, match="prepend_scheme.*'always', with '<e>'"):
            load_given_tokenizer(path, "t5")
        return
    texts = ["a<e>b", "a<e> b  a"]
    assert ids(load_given_tokenizer(path, "t5"), texts) == their_ids(theirs, texts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "Nmt"}}, "normalizer.* must have .* Received: 'Nmt'"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "Received: 'Metaspace'"),
        (
            {"pre_tokenizer": {"type": "Digits", "individual_digits": "no"}},
            "individual_digits='no' of Digits",
        ),
        ({"model": {"type": "WordLevel"}}, "one of the types .*'WordLevel'"),
        ({"model": 3}, "Received: None"),
        ({"registered_name": "x"}, "must be the folder of a preset, not a file"),
    ],
)
def test_json_of_what_no_class_here_does(change, message, tmp_path):
    path = tmp_path / "tokenizer.json"
    content = json.loads(word_piece(True).to_str())
    path.write_text(json.dumps({**content, **change}), "utf-8")
    with pytest.raises(ValueError, match=message):
        load_given_tokenizer(path)


def test_paths_at_which_there_is_no_tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "two", "models", "pairs"):
        pathlib.Path(name).mkdir()
    for name in ("two/vocab.txt", "two/spiece.model", "models/a.model", "dict.txt"):
        pathlib.Path(name).write_text("x")
    for name in ("models/b.model", "pairs/vocab.json", "vocab.txt", "pairs/merges.txt"):
        pathlib.Path(name).write_text("")
    for path, message in {
        "nowhere": "`tokenizer` must be the name or folder of a preset, .*'nowhere",
        "bert_base_en_uncase": "exist; the nearest name is 'bert_base_en_uncased'.",
        "dict.txt": "`tokenizer` must be .* vocab.txt, .* 'dict.txt'",
        "pairs/merges.txt": "or vocab.json with merges.txt beside it. Recei",
        "empty": "There is no tokenizer in 'empty'. Expected: .* these files: none",
        "two": r"one tokenizer only.* vocab.txt \(word_piece\), spiece.model \(sent",
        "models": "must have one tokenizer only.* a.model .* b.model",
        "vocab.txt": "'vocab.txt' isn't supported",
        "pairs": "vocab.json' can't be read",
    }.items():
        with pytest.raises(ValueError, match=message):
            load_given_tokenizer(path, "roberta")
    pathlib.Path("pairs/merges.txt").unlink()
    with pytest.raises(ValueError, match="must have merges.txt beside it. There is n"):
        load_given_tokenizer("pairs/vocab.json", "roberta")
    with pytest.raises(ValueError, match="'models/a.model' can't be read"):
        load_given_tokenizer("models/a.model", "albert")


def test_a_folder_of_a_model_that_is_not_here(tmp_path):
    word_piece(True).save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "MobileBertTokenizer", "do_lower_case": True}
    write(tmp_path, config={"model_type": "mobilebert"}, tokenizer_config=config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert load_given_tokenizer(tmp_path).lowercase
    # Of one that is here, it is a checkpoint.
    write(tmp_path, config={"model_type": "bert"})
    assert open_tokenizer(tmp_path) is None


def test_a_preset_is_a_preset(tmp_path, monkeypatch):
    model = make()
    model.save_to_preset(str(tmp_path / "whole"))
    model.preprocessor.tokenizer.save_to_preset(str(tmp_path / "alone"))
    for name in ("whole", "alone"):
        assert open_tokenizer(tmp_path / name, "albert") is None
        loaded = load_given_tokenizer(tmp_path / name, "albert")
        assert loaded.get_vocabulary() == model.preprocessor.tokenizer.get_vocabulary()
    # A published name is one, whatever is in the folder that one is in.
    monkeypatch.chdir(tmp_path)
    pathlib.Path("bert_tiny_en_uncased").write_text("x")
    assert open_tokenizer("bert_tiny_en_uncased") is None
    with pytest.raises(ValueError, match="`tokenizer` must be"):
        open_tokenizer("./bert_tiny_en_uncased")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "family", "text", "expected"),
    [
        ("bert_uncased/vocab.txt", None, 0, [7592, 1010, 2026, 3899, 2003, 10140]),
        ("bert_cased/vocab.txt", None, 0, [8667, 117, 1139, 3676, 1110, 10509]),
        ("gpt2/vocab.json", "gpt2", 0, [15496, 11, 616, 3290, 318, 13779]),
        ("roberta", "roberta", 0, [31414, 6, 127, 2335, 16, 11962]),
        ("xlnet/spiece.model", "xlnet", 0, [17, 11368, 19, 94, 2288, 27, 10920]),
        ("albert/spiece.model", "albert", 1, [48, 25, 21, 1289]),
    ],
)
def test_published_vocabularies(name, family, text, expected, data_dir):
    given = ["Hello, my dog is cute", "This is a test"][text]
    tokenizer = load_given_tokenizer(data_dir / "tokenizers" / name, family)
    assert ids(tokenizer, [given]) == [expected]
