"""Real text that every Python has: its own documentation."""

import re


def python_documentation() -> list[str]:
    """The documents of `pydoc_data.topics`, a paragraph a line.

    About 65,000 words of English prose in 79 documents, for demonstrations and
    tests that must not download anything.

    Returns:
        List of str.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(
        keras_bertfam.corpus.python_documentation())
    ```
    """
    from pydoc_data.topics import topics

    return [_one_paragraph_a_line(topics[name]) for name in sorted(topics)]


def _one_paragraph_a_line(text):
    text = re.sub(r"^[*=~^\-\"]{3,}$", "", text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text)
    lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return "\n".join(line for line in lines if line)
