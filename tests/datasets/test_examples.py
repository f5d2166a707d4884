import dataclasses
import json

import pytest

from keras_bertfam.datasets import Examples, get_task, load_examples


def test_articles_are_kept_together(tmp_path):
    articles = [
        {"paragraphs": [{"context": text, "qas": [{"id": text, "question": "Who?"}]}]}
        for text in "abcde"
    ]
    for article, title in zip(articles, "ttuvv", strict=True):
        article["title"] = title
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"data": articles}))
    examples = load_examples("squad", data=path)
    first, second = examples.split_articles(2)
    assert (first.ids, second.ids) == (["a", "b", "c"], ["d", "e"])
    assert (first.titles, second.titles) == (["t", "t", "u"], ["v", "v"])
    shuffled = dataclasses.replace(examples, titles=["t", "u", "t", "v", "u"])
    first, second = shuffled.split_articles(2)
    assert (first.ids, first.titles) == (["a", "b", "c", "e"], ["t", "u", "t", "u"])
    assert first.x["context"] == ["a", "b", "c", "e"] and len(first.y) == 4
    assert (second.ids, second.titles) == (["d"], ["v"])
    for count in (0, 3):
        with pytest.raises(ValueError, match=f"articles, 3. Received: {count}"):
            examples.split_articles(count)
    with pytest.raises(ValueError, match="articles, 0. Received: 1"):
        Examples(["a"], [0], get_task("sst2")).split_articles(1)
