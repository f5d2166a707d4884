import json

import pytest

from keras_bertfam.corpus import python_docstrings, python_documentation


def test_documents_of_prose():
    documents = python_documentation()
    assert len(documents) > 70
    assert sum(len(document.split()) for document in documents) > 60_000
    lines = "\n".join(documents).splitlines()
    assert all(line == line.strip() != "" for line in lines)
    # Wrapped lines have become paragraphs.
    assert max(len(line) for line in lines) > 500


def test_docstrings_of_packages():
    pairs = python_docstrings(["email", "json"])
    texts = [text for text, _ in pairs]
    assert {package for _, package in pairs} == {"email", "json"}
    assert len({*texts}) == len(texts) > 100
    assert min(len(text.split()) for text in texts) >= 6
    first = json.JSONDecoder.__doc__.split("\n\n")[0]
    assert any(text.startswith(" ".join(first.split())) for text in texts)
    for wrong in ("nowhere", "", "json.decoder"):
        with pytest.raises(ValueError, match="`packages` must be packages"):
            python_docstrings(["json", wrong])
