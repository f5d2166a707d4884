import importlib.util

import pytest

from keras_bertfam.corpus import python_documentation
from tests.checkout import ROOT

PATH = ROOT / "examples" / "ablation.py"


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_ablation(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("BERTFAM_DATA", raising=False)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(python_documentation()[:40]), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("ablation", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.main(
        str(text),
        objective=["dynamic", "sop", "electra"],
        architecture=["bert_l2_h128_en_uncased"],
        steps=12,
        batch_size=8,
        sequence_length=64,
        vocabulary_size=500,
        output=str(tmp_path / "ablation.png"),
    )
    assert [row["objective"] for row in rows] == ["dynamic", "sop", "electra"]
    for row in rows:
        assert 0 < row["masked accuracy"] < 1 and row["tokens/s"] > 0
        assert 1 < row["pseudo-perplexity"] < 2000
    assert 0 < rows[1]["sentence accuracy"] < 1
    assert (tmp_path / "ablation.png").stat().st_size > 1000
    assert "| electra | bert_l2_h128_en_uncased |" in capsys.readouterr().out
