"""SciBERT's data in the formats that its repository has it in."""

import json

import pytest

from keras_bertfam.datasets import load_examples
from keras_bertfam.datasets.task_data import TASKS

pytestmark = pytest.mark.any_backend


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# Of each: the file, inputs and labels.
TAGGED = {
    # Tabs and lines of documents; an entity of one word begins with "I-".
    "bc5cdr": (
        "-DOCSTART- (1)\n\nNaloxone\tNN\tO\tI-Entity\nreverses\tVB\tO\tO\n\n"
        "lupus\tNN\tO\tB-Entity\nnephritis\tNN\tO\tI-Entity\n",
        [["Naloxone", "reverses"], ["lupus", "nephritis"]],
        [["I-Entity", "O"], ["B-Entity", "I-Entity"]],
    ),
    "jnlpba": (
        "-DOCSTART-\tX\tO\tO\n\nIL-2\tNN\tO\tB-DNA\ngene\tNN\tO\tI-DNA\n",
        [["IL-2", "gene"]],
        [["B-DNA", "I-DNA"]],
    ),
    "ncbi_disease": (
        "-DOCSTART- -X- -X- O\n\nAPC\tNN\tO\tO\ncancers\tNN\tO\tB-Disease\n\n",
        [["APC", "cancers"]],
        [["O", "B-Disease"]],
    ),
    # Spaces.
    "scierc": (
        "We NN O O\nuse NN O O\nHMMs NN O I-Method\n",
        [["We", "use", "HMMs"]],
        [["O", "O", "I-Method"]],
    ),
    "ebm_nlp": (
        "-DOCSTART- -X- O O\n\nchildren NNS O I-PAR\n"
        "took VBD O O\naspirin NN O I-INT\n",
        [["children", "took", "aspirin"]],
        [["I-PAR", "O", "I-INT"]],
    ),
}
SENTENCE = (
    "1\tIL-2\tIL-2\tNOUN\tNN\t_\t2\tnn\t_\t_\n"
    "2\tgene\tgene\tNOUN\tNN\t_\t0\troot\t_\t_\n"
)
CHEMPROT = [
    {
        "text": "<< Gefitinib >> inhibits [[ EGFR ]] .",
        "label": "INHIBITOR",
        "metadata": [],
    },
    {"text": "[[EGFR]] (<< Gefitinib >>)", "label": "ACTIVATOR", "metadata": []},
]


@pytest.mark.parametrize("name", TAGGED)
def test_tags(name, tmp_path):
    text, x, y = TAGGED[name]
    (tmp_path / "train.txt").write_text(text)
    examples = load_examples(name, "train", tmp_path)
    assert (examples.x, examples.y) == (x, y)
    assert {tag for tags in y for tag in tags} <= {*examples.label_names}
    metric = "word_macro_f1" if name == "ebm_nlp" else "entity_f1"
    assert examples.task.metrics == (metric,)


@pytest.mark.parametrize("name", ["genia", "ud_ewt_trees"])
def test_trees(name, tmp_path):
    parts = {"genia": "train.txt", "ud_ewt_trees": "en_ewt-ud-train.conllu"}
    # Ranges and empty words are none.
    more = "# sent_id = 1\n1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n"
    (tmp_path / parts[name]).write_text(f"{SENTENCE}\n{more}{SENTENCE}\n")
    examples = load_examples(name, "train", tmp_path)
    assert examples.x == [["IL-2", "gene"]] * 2
    assert examples.y == [[(2, "nn"), (0, "root")]] * 2
    assert examples.label_names == ("nn", "root") and len(examples[:1]) == 1
    assert examples.task.metrics == ("las", "uas")
    (tmp_path / parts[name]).write_text(SENTENCE.replace("\t2\t", "\t3\t"))
    with pytest.raises(ValueError, match="row 1 of 1, column 'head'.*'3'"):
        load_examples(name, "train", tmp_path)
    for broken in (SENTENCE * 2, SENTENCE.replace("2\tgene", "3\tgene")):
        (tmp_path / parts[name]).write_text(broken)
        with pytest.raises(ValueError, match="or an empty line between sentences"):
            load_examples(name, "train", tmp_path)


def test_relations(tmp_path):
    (tmp_path / "train.txt").write_text(lines_of(CHEMPROT))
    examples = load_examples("chemprot", "train", tmp_path)
    texts = ["Gefitinib inhibits EGFR .", "EGFR (Gefitinib)"]
    spans = {"first": [[0, 9], [6, 15]], "second": [[19, 23], [0, 4]]}
    assert examples.x == {"text": texts, **spans}
    assert [examples.label_names[k] for k in examples.y] == ["INHIBITOR", "ACTIVATOR"]
    assert len(examples.label_names) == 13 and len(examples) == 2
    for text in (">> a << b [[ c ]]", "<< >> b [[ c ]]"):
        row = {"text": text, "label": "INHIBITOR", "metadata": []}
        (tmp_path / "train.txt").write_text(lines_of([row]))
        with pytest.raises(ValueError, match="around some text each"):
            load_examples("chemprot", "train", tmp_path)
    # There the first argument is in the other marks, and spans may be nested.
    row = {"text": "[[ HMMs for << speech >> ]]", "label": "USED-FOR", "metadata": []}
    (tmp_path / "train.txt").write_text(lines_of([row]))
    examples = load_examples("scierc_relations", "train", tmp_path)
    assert examples.x["text"] == ["HMMs for speech"]
    assert (examples.x["first"], examples.x["second"]) == ([[0, 15]], [[9, 15]])
    (tmp_path / "train.txt").write_text(lines_of([{**row, "text": "<< a >> b"}]))
    with pytest.raises(ValueError, match="row 1 of 1, column 'text': Expected a text"):
        load_examples("chemprot", "train", tmp_path)


@pytest.mark.parametrize(
    ("name", "labels"),
    [("acl_arc", ["CompareOrContrast", "Uses"]), ("scicite", ["method", "result"])],
)
def test_intents(name, labels, tmp_path):
    rows = [{"text": "We use X .", "label": each, "metadata": {}} for each in labels]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(lines_of(rows))
    examples = load_examples(name, "validation", tmp_path)
    assert examples.x == ["We use X ."] * 2
    assert [examples.label_names[k] for k in examples.y] == labels
    assert examples.task.metrics == ("macro_f1",)


def test_real_trees(data_dir):
    examples = load_examples("ud_ewt_trees", "validation", data_dir / "ud_ewt")
    assert len(examples) == 2001
    assert all(sum(head == 0 for head, _ in tree) == 1 for tree in examples.y)
    assert TASKS["ud_ewt_trees"].can_be_learned
