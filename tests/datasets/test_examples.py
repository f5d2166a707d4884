import dataclasses
import json

import pytest

from keras_bertfam.datasets import Examples, load_examples
from keras_bertfam.datasets.task_data import get_task


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


def test_parts_have_the_same_share_of_each_class():
    y = [0] * 70 + [1] * 25 + [2] * 4 + [3]
    examples = Examples(([*range(100)], [*range(100)]), y, get_task("mnli"))
    for seed in range(5):
        train, validation = examples.split(0.2, seed)
        assert len(train) == 80 and train.x[0] == train.x[1]
        assert validation.y == [0] * 14 + [1] * 5 + [2]
        assert sorted([*train.x[0], *validation.x[0]]) == [*range(100)]
        assert train.x[0] == sorted(train.x[0])
        assert examples.split(0.2, seed)[1].x == validation.x
    assert examples.split(0.2, 1)[1].x != examples.split(0.2, 2)[1].x
    for share in (0.001, 0.005, 0.995, 0.5):
        assert len(set(examples.split(max(share, 0.01))[0].y)) == 4
    numbers = dataclasses.replace(examples, task=get_task("stsb"))
    assert len(numbers.split(0.25)[1]) == 25
    unlabelled = dataclasses.replace(examples, y=None)
    assert unlabelled.split(0.25)[1].y is None
    with pytest.raises(ValueError, match="`share` must be a finite number"):
        examples.split(float("nan"))
    for share in (0, 1, -0.1, 1.5, 0.001):
        with pytest.raises(ValueError, match="`validation_split`.* for 100 examples"):
            examples.split(share)
    with pytest.raises(ValueError, match="for 1 examples"):
        examples[:1].split(0.5)
