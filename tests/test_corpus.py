from keras_bertfam.corpus import python_documentation


def test_documents_of_prose():
    documents = python_documentation()
    assert len(documents) > 70
    assert sum(len(document.split()) for document in documents) > 60_000
    lines = "\n".join(documents).splitlines()
    assert all(line == line.strip() != "" for line in lines)
    # Wrapped lines have become paragraphs.
    assert max(len(line) for line in lines) > 500
