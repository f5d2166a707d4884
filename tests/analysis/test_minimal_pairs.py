import json
import zipfile

import numpy as np
import pytest

from keras_bertfam.analysis import minimal_pairs, pseudo_log_likelihood
from keras_bertfam.analysis.likelihood import log_likelihood, read_blimp
from keras_bertfam.tasks import CausalLM, CausalLMPreprocessor, TextEmbedder
from tests import tiny_fine_tuning, tiny_text_to_text
from tests import tiny_masked_lm as tiny

PAIRS = {
    "order": [("the cat sat", "cat the sat"), ("a dog", "dog a"), ("a cat", "cat a")],
    "ties": [("the cat", "the cat")],
}


@pytest.mark.slow
@pytest.mark.any_backend
def test_shares_and_errors_are_those_of_the_sums():
    model = tiny.make_model()
    report = minimal_pairs(model, PAIRS)
    good, bad = (
        pseudo_log_likelihood(model, [pair[k] for pair in PAIRS["order"]])[0]
        for k in (0, 1)
    )
    right = int(np.sum(good > bad))
    assert report.scores == pytest.approx(
        {"order": 100 * right / 3, "ties": 0, "all pairs": 100 * right / 4}
    )
    differences = [error["difference"] for error in report.errors]
    assert len(differences) == 4 - right and differences == sorted(differences)
    assert "| order |" in report.to_markdown() and "ties" in str(report)
    assert len(report.plot().axes[0].patches) == 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_models_that_read_from_left_to_right_have_their_likelihood():
    tokenizer = tiny_fine_tuning.make_tokenizer()
    size = tokenizer.vocabulary_size()
    backbone = tiny_text_to_text.make("GPT2", vocabulary_size=size)
    model = CausalLM(backbone, CausalLMPreprocessor(tokenizer, 12))
    report = minimal_pairs(model, PAIRS)
    texts = [text for pair in PAIRS["order"] for text in pair]
    sums, _ = log_likelihood(model, texts)
    right = int(np.sum(sums[::2] > sums[1::2]))
    assert report.scores["order"] == pytest.approx(100 * right / 3)
    assert report.scores["ties"] == 0
    with pytest.raises(ValueError, match="`task` must be a masked.*TextEmbedder"):
        minimal_pairs(TextEmbedder(backbone=tiny_fine_tuning.make_backbone()), PAIRS)


@pytest.mark.any_backend
def test_blimp_is_read_from_a_folder_or_an_archive(tmp_path):
    def lines(term, *pairs):
        names = ("sentence_good", "sentence_bad", "linguistics_term")
        rows = [dict(zip(names, (*pair, term), strict=True)) for pair in pairs]
        return "\n".join(map(json.dumps, rows))

    texts = {"b": lines("order", *PAIRS["order"]), "a": lines("order", ("é", "e"))}
    with zipfile.ZipFile(tmp_path / "BLiMP.zip", "w") as archive:
        for name, text in texts.items():
            (tmp_path / f"{name}.jsonl").write_text(text, "utf-8")
            archive.writestr(f"data/{name}.jsonl", text)
        archive.writestr("__MACOSX/data/._a.jsonl", b"\x00\xff")
    expected = {"order": [("é", "e"), *PAIRS["order"]]}
    assert read_blimp(tmp_path) == read_blimp(tmp_path / "BLiMP.zip") == expected
    assert read_blimp(tmp_path, limit=1) == {"order": [("é", "e"), PAIRS["order"][0]]}
    for path in (tmp_path / "none", tmp_path / "a.jsonl"):
        with pytest.raises(ValueError, match="`path` must be of `BLiMP.zip`"):
            read_blimp(path)


@pytest.mark.any_backend
def test_lines_of_blimp_end_with_line_feeds_only(tmp_path):
    """JSON's own strings may have other ends of lines."""
    row = dict(sentence_good="a\u2028b", sentence_bad="b", linguistics_term="order")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False), "utf-8")
    assert read_blimp(tmp_path, limit=1) == {"order": [("a\u2028b", "b")]}
    path.write_text(json.dumps({**row, "sentence_bad": None}))
    with pytest.raises(ValueError, match="a.jsonl, line 1: expected strings as"):
        read_blimp(tmp_path)


@pytest.mark.any_backend
@pytest.mark.parametrize("pairs", [{}, {"x": []}, {"x": ["ab"]}, {"x": [("a", None)]}])
def test_what_is_no_pair(pairs):
    with pytest.raises(ValueError, match="`pairs` must have"):
        minimal_pairs(tiny.make_model(), pairs)


@pytest.mark.data
@pytest.mark.any_backend
def test_published_blimp(data_dir):
    """12 phenomena of 67 files, of which BLiMP's paper says how many each has."""
    pairs = read_blimp(data_dir / "blimp" / "BLiMP.zip", limit=2)
    counts = {name: len(given) // 2 for name, given in pairs.items()}
    assert len(counts) == 12 and sum(counts.values()) == 67
    assert counts["island_effects"] == 8 and counts["argument_structure"] == 9
    few = {name: given[:1] for name, given in pairs.items()}
    report = minimal_pairs(tiny.make_model(), few)
    assert {*report.scores} == {*counts, "all pairs"}
