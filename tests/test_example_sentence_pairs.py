import importlib.util
import pathlib

import pytest

from keras_bertfam.corpus import python_documentation
from keras_bertfam.tasks import MaskedLMSentencePair

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "objective", "size"),
    [
        ("bert", "nsp", {"num_layers": 1, "num_heads": 2, "hidden_dim": 16}),
        ("albert", "sop", {"num_layers": 2, "num_heads": 2, "hidden_dim": 16}),
    ],
)
def test_the_example(paper, objective, size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(python_documentation()[:8]), "utf-8")
    path = EXAMPLES / "pretrain_sentence_pairs.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    size = {**size, "intermediate_dim": 32}
    module.main(paper, str(text), epochs=1, vocabulary_size=300, **size)
    model = MaskedLMSentencePair.from_preset(str(tmp_path / f"my_{paper}"))
    assert model.sentence_objective == objective
    assert model.fill_mask("the [MASK] .", top_k=1)[0]
    assert not (tmp_path / "backup").exists()
