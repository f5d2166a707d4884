"""Templates: what they write, and which fields they may have."""

import dataclasses

import pytest

from keras_bertfam.datasets import Examples, Template, write_examples
from keras_bertfam.datasets.task_data import TASKS, TaskData, get_task
from keras_bertfam.datasets.templates import TEMPLATES, as_template

pytestmark = pytest.mark.any_backend
PAIR = (["A {cat} sat.", "Ünö"], ["A cat.", ""])


def rte(y=(0, 1)):
    return Examples(PAIR, None if y is None else [*y], get_task("rte"))


def test_fields_are_filled_as_they_are():
    template = Template(
        "{{1}} {sentence1}|{sentence2}\n{choices}", "so {label}.", ["yes", "no"]
    )
    inputs, targets = write_examples(rte(), template)
    assert inputs == [
        "{1} A {cat} sat.|A cat.\n- yes\n- no",
        "{1} Ünö|\n- yes\n- no",
    ]
    assert targets == ["so yes.", "so no."]
    assert write_examples(rte(None), template) == (inputs, None)
    # By default classes are called by their names.
    assert write_examples(rte(), "{sentence2}")[1] == ["entailment", "not_entailment"]
    assert write_examples(rte([1, 1]), {"input": "", "target": "{sentence1}"}) == (
        ["", ""],
        PAIR[0],
    )


def test_numbers_questions_choices_and_texts():
    pair = (["a"], ["b"])
    like = Examples(pair, [3.75], get_task("stsb"))
    assert write_examples(like, "{sentence1}{sentence2}") == (["ab"], ["3.8"])
    asked = {"question": ["Who?"], "context": ["I, he's said."]}
    answers = [{"text": ["he's", "I"], "answer_start": [3, 0]}]
    squad = Examples(asked, answers, get_task("squad"))
    assert write_examples(squad, "{context} {question}") == (
        ["I, he's said. Who?"],
        ["he's"],
    )
    none = dataclasses.replace(squad, y=[{"text": [], "answer_start": []}])
    assert write_examples(none, "{question}")[1] == [""]
    race = Examples((["text"], [["a b", "a c"]]), [1], get_task("race"))
    assert write_examples(race, "{article}\n{choices}") == (
        ["text\n- a b\n- a c"],
        ["a c"],
    )
    own = TaskData("mine", "text_to_text", columns=("de",), label="en")
    assert write_examples(Examples(["ja"], ["yes"], own), "{de}: {label}") == (
        ["ja: yes"],
        ["yes"],
    )
    numbered = TaskData("mine", "classification", columns=("text",))
    assert write_examples(Examples(["a"] * 2, [0, 2], numbered), "{choices}") == (
        ["- 0\n- 1\n- 2"] * 2,
        ["0", "2"],
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{sentence3}",
            "`input` of a template for 'rte'.*'sentence1'.*'sentence3', in",
        ),
        ({"input": "", "target": "{premise}"}, "`target` of a template.*'premise'"),
        ({"input": "", "choices": ["yes"]}, "`choices` .* one for each of the 2"),
        ({"input": "", "choices": "yes"}, "`choices` must be several strings"),
        ({"input": "", "target": None}, "`target` must be a text"),
        ({"input": "", "answer": "yes"}, "A template must be .*'answer'"),
        ({"target": ""}, "A template must be"),
        (3, "A template must be"),
        ("{", "`input` must be a text with fields"),
        ("{}", "`input` must be a text with fields"),
        ("{0}", "must have fields of .* Received: '0'"),
        ("{sentence1.upper}", "`input` must be a text with fields"),
        ("{label.real}", "`input` must be a text with fields"),
        ("{label!r}", "`input` must be a text with fields"),
        ("{label:>9}", "`input` must be a text with fields"),
    ],
)
def test_what_fits_no_task_is_refused_by_name(template, message):
    with pytest.raises(ValueError, match=message):
        write_examples(rte(), template)


def test_what_else_is_refused():
    like = Examples((["a"], ["b"]), [3.75], get_task("stsb"))
    with pytest.raises(ValueError, match="`choices` of a template for 'stsb'"):
        write_examples(like, Template("{sentence1}", choices=["a"]))
    with pytest.raises(ValueError, match=r"fields of .*\. Received: 'choices'"):
        write_examples(like, "{choices}")
    with pytest.raises(ValueError, match="must have labels for the input '{label}'"):
        write_examples(rte(None), "{label}")
    tags = Examples([["a"]], [["O"]], get_task("wnut17"))
    with pytest.raises(ValueError, match="`examples` must be of a task of kind"):
        write_examples(tags, "{tokens}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_librarys_fit_their_tasks(name):
    task = TASKS[name]
    templates = TEMPLATES[name]
    assert len({template.input for template in templates}) == len(templates) > 2
    x = tuple([f"<{column}>"] for column in task.columns)
    y = [{"text": ["<answers>"]}] if task.label == "answers" else [1]
    y = ["<label>"] if task.kind == "text_to_text" else y
    if task.kind == "question_answering":
        x = dict(zip(task.columns, x, strict=True))
    examples = Examples(x, y, task)
    for template in templates:
        assert as_template(dataclasses.asdict(template)) == template
        [given], [target] = write_examples(examples, template)
        # All that is known of the example is asked or answered.
        for column in task.columns:
            assert f"<{column}>" in given + target
        assert target and given == given.strip()
