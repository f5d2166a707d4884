"""BART's heads of classes and of spans against `transformers`, in and out."""

import numpy as np
import pytest

from keras_bertfam import tasks
from keras_bertfam.presets.checkpoints import huggingface
from keras_bertfam.presets.converting.heads import task_name
from tests.conformance.test_hf_text_to_text import BART, GPT, MASK, RNG, arrays
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Padding on the right, the end token (2) last, and one more in one of the rows.
LENGTHS = np.array([7, 4, 6])
IDS = RNG.integers(3, 20, MASK.shape).astype("int32")
IDS[np.arange(3), LENGTHS - 1] = 2
IDS[:, 1] = 2
REAL = np.arange(7) < LENGTHS[:, None]
IDS = np.where(REAL, IDS, 1)


def make_theirs(ending):
    labels = dict(enumerate("abc"))
    named = {"num_labels": 3, "id2label": labels} if "Classification" in ending else {}
    config = transformers.BartConfig(
        vocab_size=20, classifier_dropout=0.2, **BART, **named
    )
    torch.manual_seed(1)
    return randomize(getattr(transformers, f"BartFor{ending}")(config), 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "cls"),
    [
        ("SequenceClassification", tasks.TextClassifier),
        ("QuestionAnswering", tasks.SpanQuestionAnswering),
    ],
)
def test_logits_and_folders(ending, cls, tmp_path):
    theirs = make_theirs(ending)
    theirs.save_pretrained(tmp_path / "theirs")
    assert task_name(huggingface.open_source(tmp_path / "theirs")) == cls.__name__
    ours = cls.from_preset(str(tmp_path / "theirs"))
    x = {"token_ids": IDS, "padding_mask": REAL}
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS).long(), torch.tensor(REAL).long())
    outputs = ours(x)
    if cls is tasks.TextClassifier:
        assert expected.logits.abs().max() > 0.1
        assert max_difference(outputs, expected.logits) < 1e-4
        assert ours.label_names == ["a", "b", "c"]
        assert (ours.dropout, ours.head_style, ours.lm_weight) == (0.2, "bart", 0.0)
    else:
        for name in ("start_logits", "end_logits"):
            assert max_difference(outputs[name], expected[name], REAL) < 1e-4
    ours.export_to_transformers(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    ours.save_to_preset(str(tmp_path / "preset"))
    kept = cls.from_preset(str(tmp_path / "preset"), preprocessor=None)
    for first, second in zip(arrays(ours), arrays(kept), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.any_backend
def test_checkpoints_of_families_without_such_a_head():
    writer = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=20, **GPT))
    reader = make_theirs("ConditionalGeneration")
    for theirs, cls, arguments in (
        (writer, tasks.TextClassifier, {"num_classes": 2}),
        (writer, tasks.SpanQuestionAnswering, {}),
        (reader, tasks.TextClassifier, {"num_classes": 2}),
        (reader, tasks.MultipleChoice, {}),
    ):
        with pytest.warns(UserWarning, match="and new"):
            task = convert(cls, theirs, **arguments)
        table = getattr(theirs, theirs.base_model_prefix).get_input_embeddings().weight
        assert max_difference(task.backbone.token_embedding.embeddings, table) == 0
    with pytest.raises(ValueError, match="`transformers` has no Bart of this kind"):
        task.export_to_transformers("nowhere")
