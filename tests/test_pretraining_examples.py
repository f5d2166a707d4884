"""The examples that pre-train, on real text, with tiny settings."""

import importlib.util
import inspect
import os
import pathlib

import pytest
import typer

from keras_bertfam import models
from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.tasks import (
    CausalLM,
    MaskedDiffusionLM,
    MaskedLM,
    MaskedLMPreprocessor,
    MaskedLMSentencePair,
    MaskedPermutedLM,
    SpanBoundaryLM,
    TextToText,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_fine_tuning as fine_tuning
from tests import tiny_masked_lm as tiny
from tests.checkout import ROOT

EXAMPLES = ROOT / "examples"
SETTINGS = {
    "size": "tiny",
    "epochs": 1,
    "steps_per_epoch": 2,
    "vocabulary_size": 400,
    "sequence_length": 32,
    "batch_size": 4,
}


@pytest.fixture
def text_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(python_documentation()[:8]), "utf-8")
    return "text.txt"


def load_example(name):
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_example(name, *files, **settings):
    module = load_example(name)
    return module.command(None, files=[*files], **{**SETTINGS, **settings})


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("pretrain_*.py")), ids=lambda path: path.stem
)
def test_an_example_fits_on_a_screen(path):
    assert len(path.read_text("utf-8").splitlines()) < 70


@pytest.mark.slow
def test_masked_lm(text_file):
    model = run_example("pretrain_masked_lm", text_file, mask_rate=0.3)
    assert model.preprocessor.mask_selection_rate == 0.3
    assert MaskedLM.from_preset("my_bert").fill_mask("the [MASK] .", top_k=1)[0]
    assert sorted(os.listdir(".")) == ["my_bert", "text.txt"]


def test_what_an_example_makes_no_use_of(text_file):
    module = load_example("pretrain_masked_lm")
    assert not {"preset", "objective"} & {*inspect.signature(module.command).parameters}
    for name, value in (("preset", "my_bert"), ("objective", "nsp")):
        pathlib.Path("run.yaml").write_text(f"{name}: {value}\nfiles: {text_file}\n")
        with pytest.raises(typer.BadParameter, match=f"`{name}` must be .* or left"):
            module.command(None, config="run.yaml")


@pytest.mark.parametrize(
    ("name", "setting", "objective"),
    [
        ("pretrain_masked_lm", "packing: doc", "mlm"),
        ("distill", "teacher: my_bert", "distillation"),
    ],
)
def test_a_file_may_leave_out_what_is_fixed(
    name, setting, objective, text_file, monkeypatch
):
    runs = []
    module = load_example(name)
    monkeypatch.setattr(module.pretraining, "begin", runs.append)
    pathlib.Path("run.yaml").write_text(f"{setting}\nfiles: {text_file}\n")
    with pytest.raises(TypeError):  # what is stubbed gives no documents
        module.command(None, config="run.yaml")
    assert [run.objective for run in runs] == [objective]


@pytest.mark.parametrize(
    ("name", "family"),
    [("pretrain_sentence_pairs", "roberta"), ("pretrain_t5", "bert")],
)
def test_an_objective_of_another_task(name, family, text_file):
    with pytest.raises(typer.BadParameter, match="`objective` must be one of .* here"):
        run_example(name, text_file, family=family)


@pytest.mark.slow
def test_diffusion(text_file, capsys):
    model = run_example("pretrain_diffusion", text_file)
    written = [x for x in capsys.readouterr().out.splitlines() if " steps: the" in x]
    assert len(written) == 4
    loaded = MaskedDiffusionLM.from_preset("my_diffusion")
    assert loaded.generate("a", 3, seed=1) == model.generate("a", 3, seed=1)


def load_main(name):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text("utf-8").splitlines()) < 65
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.mark.slow("release")
def test_longformer_and_modernbert(text_file):
    tiny.make_model().save_to_preset("short")
    make = load_main("make_longformer")
    model = make("short", "longer", [text_file], 96, 8, batch_size=2, steps=2)
    assert isinstance(model.backbone, models.LongformerBackbone)
    again = MaskedLM.from_preset("longer")
    assert again.backbone.max_sequence_length == 96
    assert again.fill_mask("the [MASK] .", top_k=1)[0]
    pretrain = load_main("pretrain_modernbert")
    sizes = {"size": "tiny", "vocabulary_size": 400, "tokens": 64}
    model = pretrain("modern", [text_file], **sizes, lengths=(32, 64), steps=(2, 2))
    assert model.backbone.rotary_base == (160_000, 10_000)
    assert MaskedLM.from_preset("modern").fill_mask("the [MASK] .", top_k=1)[0]


@pytest.mark.slow("release")
def test_mmbert(text_file):
    pretrain = load_main("pretrain_mmbert")
    sizes = {"size": "tiny", "vocabulary_size": 400, "tokens": 64, "steps": 3}
    languages = [f"{name}={text_file}" for name in ("en", "is")]
    model = pretrain("mm", languages, **sizes, lengths=(16, 32))
    assert model.preprocessor.mask_selection_rate == 0.05
    assert model.backbone.rotary_base == (160_000, 160_000)
    assert MaskedLM.from_preset("mm").fill_mask("the <mask> .", top_k=1)[0]
    with pytest.raises(typer.BadParameter, match="LANGUAGE=FILES twice"):
        pretrain("mm", languages[:1])


@pytest.mark.slow("release")
def test_deberta(text_file):
    pretrain = load_main("pretrain_deberta")
    sizes = {"size": "tiny", "vocabulary_size": 400, "length": 32, "steps": 2}
    model = pretrain("detector", [text_file], **sizes)
    assert model.sharing == "gradient_disentangled"
    assert models.Backbone.from_preset("detector").disentangled == "shared"
    pretrain("masked", [text_file], "mlm", **sizes)
    loaded = MaskedLM.from_preset("masked")
    assert loaded.decoder_positions == 32
    assert loaded.fill_mask("the [MASK] .", top_k=1)[0]


@pytest.mark.slow
def test_sentence_pairs(text_file):
    run_example("pretrain_sentence_pairs", text_file, family="albert", output="pairs")
    loaded = MaskedLMSentencePair.from_preset("pairs")
    assert loaded.sentence_objective == "sop"
    assert isinstance(loaded.backbone, models.AlbertBackbone)


@pytest.mark.slow("release")
def test_spanbert(text_file):
    run_example("pretrain_spanbert", text_file)
    model = SpanBoundaryLM.from_preset("my_spanbert")
    assert model.fill_mask("the [MASK] sat")[0]


@pytest.mark.slow
def test_mpnet(text_file):
    run_example("pretrain_mpnet", text_file)
    model = MaskedPermutedLM.from_preset("my_mpnet")
    assert isinstance(model.backbone, models.MPNetBackbone)
    assert model.fill_mask("the <mask> sat")[0]


@pytest.mark.slow
def test_translations(text_file):
    for name, line in (("en", "the sea was blue"), ("is", "hafið var blátt")):
        pathlib.Path(f"pairs.{name}").write_text(f"{line}\n" * 9, "utf-8")
    files = ["en+is=pairs.en", "en+is=pairs.is", f"en={text_file}"]
    given = {"family": "xlm", "mix_exponent": 0.7}
    model = run_example("pretrain_translations", *files, **given)
    assert model.backbone.num_languages == len(model.preprocessor.languages) == 2
    assert MaskedLM.from_preset("my_xlm").fill_mask("the<mask> sat")[0]


@pytest.mark.slow("release")
def test_electra(text_file):
    model = run_example("pretrain_electra", text_file)
    assert models.ElectraBackbone.from_preset("my_electra").hidden_dim == 128
    generator = models.ElectraBackbone.from_preset("my_electra-generator")
    assert generator.hidden_dim == 32
    assert generator.count_params() == model.generator.count_params()


@pytest.mark.slow("release")
def test_xlnet(text_file):
    encoder = run_example("pretrain_xlnet", text_file)
    assert isinstance(encoder, models.XLNetBackbone) and encoder.num_layers == 2


@pytest.mark.slow
def test_distill(text_file):
    vocabulary = [*tiny.SPECIALS, *tiny.WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = BertTokenizer(list(dict.fromkeys(vocabulary)), lowercase=True)
    backbone = models.BertBackbone(tokenizer.vocabulary_size(), 2, 2, 16, 24)
    teacher = MaskedLM(backbone, MaskedLMPreprocessor(tokenizer, sequence_length=64))
    teacher.save_to_preset("my_bert")
    settings = {"teacher": "my_bert", "size": None, "vocabulary_size": None}
    student = run_example("distill", text_file, **settings)
    assert isinstance(student.backbone, models.DistilBertBackbone)
    assert student.backbone.num_layers == 1
    loaded = MaskedLM.from_preset("my_distilbert")
    assert loaded.fill_mask("the [MASK]", top_k=1)[0]


@pytest.mark.slow("release")
@pytest.mark.parametrize(
    ("name", "output", "cls"),
    [
        ("pretrain_t5", "my_t5", TextToText),
        ("pretrain_bart", "my_bart", TextToText),
        ("pretrain_gpt", "my_gpt", CausalLM),
    ],
)
def test_what_writes_text(name, output, cls, text_file):
    trained = run_example(name, text_file)
    loaded = cls.from_preset(output)
    assert type(loaded.preprocessor) is type(trained.preprocessor)
    assert type(loaded.backbone) is type(trained.backbone)


SMALL = {"vocabulary_size": 400, "batch_size": 4, "epochs": 1, "hidden_dim": 32}


@pytest.mark.slow("release")
def test_ernie_in_three_stages(text_file):
    settings = {**SMALL, "sequence_length": 32, "num_layers": 1}
    pathlib.Path("names.txt").write_text("Python\nimport statement\n", "utf-8")
    tagger = fine_tuning.make_backbone(num_layers=1, max_sequence_length=32)
    TokenClassifier(
        tagger,
        preprocessor=TokenClassifierPreprocessor(fine_tuning.make_tokenizer(), 32),
        label_names=["O", "B-name", "I-name"],
    ).save_to_preset("tagger")
    main = load_example("pretrain_ernie").main
    main(text_file, phrases="names.txt", tagger="tagger", **settings)
    assert {"my_ernie-basic", "my_ernie-phrase", "my_ernie-entity"} <= {
        *os.listdir(".")
    }
    model = MaskedLM.from_preset("my_ernie-entity")
    assert isinstance(model.backbone, models.ErnieBackbone)
    assert model.preprocessor.strategy.stage == "entity"
    assert model.fill_mask("the [MASK] .", top_k=1)[0]


@pytest.mark.slow("release")
def test_elmo(text_file):
    load_example("pretrain_elmo").main(text_file, cell_dim=32, num_sampled=64, **SMALL)
    assert isinstance(models.Backbone.from_preset("my_elmo"), models.ElmoBackbone)


@pytest.mark.slow
def test_transformer_xl(text_file, capsys):
    settings = {**SMALL, "num_layers": 1, "sequence_length": 16, "memory_length": 16}
    pathlib.Path("held_out.txt").write_text(python_documentation()[8][:800], "utf-8")
    load_example("pretrain_transformer_xl").main(
        text_file, held_out="held_out.txt", **settings
    )
    assert capsys.readouterr().out.count("tokens: perplexity") == 3
