"""Output tables that are, or aren't, the input's: what the file holds counts."""

import json
import pathlib

import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from tests.conformance.test_hf_round_trips import CONFIGS, THERE
from tests.conformance.test_hf_text_to_text import BART, GPT, MODERN, T5
from tests.from_transformers import max_difference, randomize
from tests.marks import in_ci

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

TABLES = {name: table for name, table in THERE.items() if table.output}
ARGUMENTS = {
    **CONFIGS,
    "OpenAIGPT": GPT,
    "GPT2": GPT,
    "ModernBertDecoder": MODERN,
    "T5": {**T5, "num_decoder_layers": 2},
    "Bart": BART,
}
ENDINGS = {
    "masked_lm": ("ForMaskedLM", tasks.MaskedLM),
    "causal_lm": ("LMHeadModel", tasks.CausalLM),
    "seq2seq_lm": ("ForConditionalGeneration", tasks.TextToText),
}
IDS = np.array([[3, 4, 5, 6], [7, 8, 9, 3]], "int32")
UNTIED, LEAST = {"tie_word_embeddings": False}, {"scale_decoder_outputs": False}


class Checkpoint:
    """A folder of `transformers`, whose config and tensors can be changed."""

    def __init__(self, family, folder):
        table = TABLES[family]
        (role,) = ENDINGS.keys() & table.heads.keys()
        ending, self.task = ENDINGS[role]
        self.cls = getattr(transformers, table.architecture(ending))
        arguments = {"vocab_size": 20, **ARGUMENTS[table.title]}
        self.config = getattr(transformers, f"{table.title}Config")(**arguments)
        state = randomize(self.cls(self.config), 0.3).state_dict()
        self.tensors = {name: t.numpy().copy() for name, t in state.items()}
        self.folder, self.output, self.family = folder, table.output, family
        self.prefix = f"{table.prefix}." if table.prefix else ""
        self.own = np.random.default_rng(0).normal(
            size=self.tensors[table.output].shape
        )
        self.own = self.own.astype("float32") / 3

    def write(self, lacking=(), config=None, **tensors):
        """Write a folder; its path."""
        held = {
            n: t for n, t in {**self.tensors, **tensors}.items() if n not in lacking
        }
        self.config.save_pretrained(self.folder)
        path = self.folder / "config.json"
        known = json.loads(path.read_text())
        if config is not None:  # as older versions write it
            known.pop("scale_decoder_outputs", None)
            known = {**known, **config}
        path.write_text(json.dumps(known))
        path = str(self.folder / "model.safetensors")
        safetensors_numpy.save_file(held, path, metadata={"format": "pt"})
        return str(self.folder)

    def theirs(self, folder):
        """Logits there."""
        model = self.cls.from_pretrained(folder)
        ids = torch.tensor(IDS).long()
        more = {} if self.task is not tasks.TextToText else {"decoder_input_ids": ids}
        with torch.no_grad():
            return model(ids, **more).logits

    def ours(self, model):
        """Logits here."""
        names = ["token_ids"]
        if self.task is tasks.TextToText:
            names = ["encoder_token_ids", "decoder_token_ids"]
        return model(dict.fromkeys(names, IDS))

    def check(self, folder, tied):
        """Compare the logits of a folder, and of what is exported again."""
        expected, model = self.theirs(folder), self.task.from_preset(folder)
        assert model.backbone.tie_embeddings is tied
        assert max_difference(self.ours(model), expected) < 1e-4
        model.export_to_transformers(self.folder / "again")
        again = self.theirs(self.folder / "again")
        assert float((again - expected).abs().max()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("family", in_ci(TABLES, "bert", "t5"))
def test_logits_are_of_the_table_in_the_file(family, tmp_path):
    made = Checkpoint(family, tmp_path)
    for config in (None, UNTIED):
        made.check(made.write(config=config, **{made.output: made.own}), tied=False)
    if not made.config.tie_word_embeddings:  # EuroBERT's, which has no copies
        return
    # A table under the name of its copy alone.
    (original,) = (
        n for n in made.tensors if n.endswith(TABLES[family].weights[0].theirs)
    )
    held = made.tensors[original]
    others = [
        n for n, t in made.tensors.items() if t.shape == held.shape and n != original
    ]
    others = [n for n in others if np.array_equal(made.tensors[n], held)]
    lacking, kept = {original, *others[:-1]}, {others[-1]: held.copy()}
    made.check(made.write(lacking=lacking, **kept), tied=True)


@pytest.mark.slow
@pytest.mark.parametrize("config", [UNTIED, {"tie_word_embeddings": True, **LEAST}])
def test_a_t5_that_is_tied_and_not_scaled(config, tmp_path):
    """What `transformers` 5.24 makes of T5 1.1, and its backbone."""
    made = Checkpoint("t5", tmp_path)
    folder = made.write(lacking=["lm_head.weight"], config=config)
    if config is UNTIED:
        with pytest.warns(UserWarning, match="the token table computes the logits"):
            made.task.from_preset(folder)
        return
    made.check(folder, tied=True)
    backbone = models.T5Backbone.from_preset(folder)
    assert backbone.tie_embeddings and not backbone.scale_outputs
    kept = tmp_path / "preset"
    made.task(backbone, None).save_to_preset(str(kept))
    again = made.task.from_preset(str(kept), preprocessor=None)
    assert max_difference(made.ours(again), made.theirs(folder)) < 1e-4


@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_side_with_a_table_of_its_own_is_refused(family, tmp_path):
    made = Checkpoint(family, tmp_path)
    for side in ("encoder", "decoder"):
        (name,) = (n for n in made.tensors if n.endswith(f"{side}.embed_tokens.weight"))
        folder = made.write(**{name: made.own})
        with pytest.raises(CheckpointError, match=f"{name}.*one table of tokens"):
            models.Backbone.from_preset(folder)
    assert pathlib.Path(folder).is_dir()
