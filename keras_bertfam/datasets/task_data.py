"""Describe each task's data: its names, columns and files."""

import dataclasses
from typing import Any

_METRICS = {
    "classification": ("accuracy",),
    "regression": ("spearman", "pearson"),
    "tagging": ("entity_f1",),
    "question_answering": ("squad_f1", "squad_exact_match"),
    "multiple_choice": ("accuracy",),
    "multi_label": ("micro_f1",),
    "text_to_text": ("chrf", "bleu"),
    "parsing": ("las", "uas"),
    "relations": ("accuracy", "macro_f1"),
    "answer_sets": ("answers_f1", "answers_match"),
    "candidates": ("squad_f1", "squad_exact_match"),
    "open_questions": ("open_exact_match",),
}
# Kinds of tasks with several examples for a question.
BY_QUESTION = ("answer_sets", "candidates")


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Hold the places and columns of a task's examples.

    Attributes:
        name: str.
        kind: `"classification"`, `"regression"`, `"tagging"`, `"multi_label"`,
            `"question_answering"`, `"multiple_choice"`, `"text_to_text"` or `"text"`;
            `"parsing"`, with the columns `head` and `deprel` as labels; `"relations"`,
            with the columns `text`, `first` and `second`; `"answer_sets"`, where each
            example is a question with one of its answers, any number of which are
            correct; `"candidates"`, where each example is a question with one text,
            and the most probable text is the answer; or `"open_questions"`, which
            have lists of answers and no passage.
        source: names of the datasets in `tensorflow_datasets`, one after the other;
            empty if it has none.
        columns: the inputs' columns in `tensorflow_datasets`, and in files after
            renaming (`renamed`). For `"multiple_choice"`: the context's column; the
            `question`'s if there is one; then one column with a list of choices, or one
            for each choice.
        label: the labels' column, or `None`.
        label_names: the classes in order.
        splits: dict from this library's names of splits to those of
            `tensorflow_datasets`.
        metrics: names in `keras_bertfam.metrics`; the first is the one to monitor.
            `None` takes those of the kind.
        layouts: known layouts of the data's folder: for each split its files. The first
            layout whose files exist, with labels to train and to validate on, is used.
        header: names of the columns of files without a first line of names.
        renamed: dict from a file's names of columns to those in `columns` and `label`.
        maximum: the greatest label of a `"regression"`; the least is 0.
        question: for `"multiple_choice"`, the column of the question. A choice replaces
            the question's `_`, or follows the question. Or `None`.
        symmetric: whether the texts of a pair can be exchanged.
        prefix: the beginning of T5's inputs; `None` for the name.
        json_lines: whether files have one JSON object a line, whatever their suffix.
        markers: for `"relations"` with marked spans: the markers before and after the
            first span, and the second.
        skip_broken_rows: whether rows without a value for each column are left out with
            a warning, instead of raising an error.
        super_glue: whether files and records are SuperGLUE's, see
            `keras_bertfam.datasets.super_glue`.
        parallel: whether a split has one file for each of `columns` and then `label`,
            with a line for each example.
        evidence: whether files are TriviaQA's, with passages in other files beside
            them.
        patterns: for `"open_questions"`, whether answers are regular expressions that
            score predictions.

    Example:

    ```python
    from keras_bertfam.datasets.task_data import TASKS, TaskData
    TASKS["sst2"].label_names  # ("negative", "positive")
    # A line: {"context": "a", "question": "b", "choices": ["c", "d"], "label": 1}
    mine = TaskData(
        "mine",
        "multiple_choice",
        columns=("context", "question", "choices"),
        question="question",
    )
    keras_bertfam.datasets.load_examples(mine, data="mine.jsonl")
    ```
    """

    name: str
    kind: str
    source: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label: str | None = "label"
    label_names: tuple[str, ...] | None = None
    splits: dict[str, str] = dataclasses.field(
        default_factory=lambda: {
            "train": "train",
            "validation": "validation",
            "test": "test",
        }
    )
    metrics: tuple[str, ...] = None  # type: ignore[assignment]  # until it is made
    layouts: tuple[dict[str, Any], ...] = ()
    header: tuple[str, ...] = ()
    renamed: dict[str, str] = dataclasses.field(default_factory=dict)
    maximum: float | None = None
    question: str | None = None
    symmetric: bool = False
    prefix: str | None = None
    json_lines: bool = False
    markers: tuple[str, ...] = ()
    skip_broken_rows: bool = False
    super_glue: bool = False
    parallel: bool = False
    evidence: bool = False
    patterns: bool = False

    def __post_init__(self) -> None:
        if self.metrics is None:
            object.__setattr__(self, "metrics", _METRICS.get(self.kind, ()))

    @property
    def can_be_learned(self) -> bool:
        """bool: whether there are labels to train on, and labels to validate on."""
        parts = {"train", "validation"} <= self.splits.keys()
        return bool(self.metrics) and parts and not self.patterns


_TSV = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_NO_VALIDATION = {"train": "train", "test": "test"}
_CONLL_SPLITS = {"train": "train", "validation": "dev", "test": "test"}
_UPOS = tuple(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB "
    "X".split()
)
_SQUAD_FILES = [
    {"train": (f"train-{v}.json",), "validation": (f"dev-{v}.json",)}
    for v in ("v1.1", "v2.0")
]
# SQuAD in Hugging Face's form, and in tables made from it.
_QUESTION_TABLES = tuple(
    {part: (f"{part}*.{ending}",) for part in ("train", "validation")}
    for ending in ("parquet", "csv")
)

_UD_EWT = tuple(
    {part: (f"en_ewt-ud-{ending}.conllu",) for part, ending in parts.items()}
    for parts in (_CONLL_SPLITS, {"validation": "dev", "test": "test"})
)


_MULTI30K = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


def _summaries(name, column, label):
    parts = ("train", "validation", "test")
    return TaskData(
        name,
        "text_to_text",
        (name,),
        (column,),
        label=label,
        metrics=("rouge2", "rouge1", "rougeLsum"),
        layouts=tuple(
            {part: (f"{part}*.{ending}",) for part in parts}
            for ending in ("jsonl", "csv", "parquet")
        ),
        prefix="summarize:",
    )


def _bio(*types):
    return ("O", *(f"{begin}-{name}" for name in types for begin in "BI"))


_ALL = (
    TaskData(
        "cola",
        "classification",
        ("glue/cola",),
        ("sentence",),
        label_names=("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"),
        layouts=(
            {
                "train": ("in_domain_train.tsv",),
                "validation": ("in_domain_dev.tsv", "out_of_domain_dev.tsv"),
            },
            _TSV,
        ),
        header=("source", "label", "mark", "sentence"),
    ),
    TaskData(
        "sst2",
        "classification",
        ("glue/sst2",),
        ("sentence",),
        label_names=("negative", "positive"),
        # A test part with labels is GLUE's validation part, as in ALPS's folder.
        layouts=(
            {"train": ("train.tsv", "dev.tsv"), "validation": ("test.tsv",)},
            _TSV,
        ),
        header=("sentence", "label"),
    ),
    TaskData(
        "mrpc",
        "classification",
        ("glue/mrpc",),
        _PAIR,
        label_names=("not_equivalent", "equivalent"),
        metrics=("f1", "accuracy"),
        # The corpus itself has two parts; it lies beside GLUE's three.
        layouts=(
            _TSV,
            {
                "train": ("msr_paraphrase_train.txt",),
                "validation": ("msr_paraphrase_test.txt",),
                "test": ("msr_paraphrase_test.txt",),
            },
        ),
        header=("label", "id1", "id2", "sentence1", "sentence2"),
        renamed={
            "Quality": "label",
            "#1 String": "sentence1",
            "#2 String": "sentence2",
        },
        symmetric=True,
    ),
    TaskData(
        "qqp",
        "classification",
        ("glue/qqp",),
        ("question1", "question2"),
        label_names=("not_duplicate", "duplicate"),
        metrics=("f1", "accuracy"),
        layouts=(_TSV,),
        renamed={"is_duplicate": "label", "id": "index"},
        # Line ends within questions; TFDS leaves these rows out, too.
        skip_broken_rows=True,
        symmetric=True,
    ),
    TaskData(
        "stsb",
        "regression",
        ("glue/stsb",),
        _PAIR,
        layouts=(
            {
                "train": ("sts-train.csv",),
                "validation": ("sts-dev.csv",),
                "test": ("sts-test.csv",),
            },
            _TSV,
        ),
        header=("genre", "file", "year", "id", "label", "sentence1", "sentence2"),
        renamed={"score": "label"},
        maximum=5.0,
        symmetric=True,
    ),
    TaskData(
        "mnli",
        "classification",
        ("glue/mnli",),
        ("premise", "hypothesis"),
        label_names=_NLI,
        splits={
            "train": "train",
            "validation": "validation_matched",
            "validation_mismatched": "validation_mismatched",
            "test": "test_matched",
            "test_mismatched": "test_mismatched",
        },
        layouts=(
            {
                "train": ("train.tsv",),
                "validation": ("dev_matched.tsv",),
                "validation_mismatched": ("dev_mismatched.tsv",),
                "test": ("test_matched.tsv",),
                "test_mismatched": ("test_mismatched.tsv",),
            },
        ),
        renamed={
            "sentence1": "premise",
            "sentence2": "hypothesis",
            "gold_label": "label",
        },
    ),
    TaskData(
        "qnli",
        "classification",
        ("glue/qnli",),
        ("question", "sentence"),
        label_names=_ENTAILMENT,
        layouts=(_TSV,),
    ),
    TaskData(
        "rte",
        "classification",
        ("glue/rte",),
        _PAIR,
        label_names=_ENTAILMENT,
        # GLUE's training part, cut in two, the second without a header.
        layouts=({**_TSV, "train": ("train.tsv", "val.tsv")}, _TSV),
        header=("index", "sentence1", "sentence2", "label"),
    ),
    TaskData(
        "wnli",
        "classification",
        ("glue/wnli",),
        _PAIR,
        label_names=("not_entailment", "entailment"),
        layouts=(_TSV,),
    ),
    TaskData(
        "ax",
        "classification",
        ("glue/ax",),
        ("premise", "hypothesis"),
        label_names=_NLI,
        splits={"test": "test"},
        layouts=({"test": ("diagnostic.tsv",)},),
        renamed={"sentence1": "premise", "sentence2": "hypothesis"},
        prefix="mnli",
    ),
    TaskData(
        "squad",
        "question_answering",
        ("squad",),
        ("question", "context"),
        label="answers",
        splits={"train": "train", "validation": "validation"},
        layouts=(_SQUAD_FILES[0], *_QUESTION_TABLES),
    ),
    TaskData(
        "squad_v2",
        "question_answering",
        ("squad/v2.0",),
        ("question", "context"),
        label="answers",
        splits={"train": "train", "validation": "validation"},
        layouts=(_SQUAD_FILES[1], *_QUESTION_TABLES),
    ),
    TaskData(
        "conll2003",
        "tagging",
        ("conll2003",),
        ("tokens",),
        label="ner",
        label_names=_bio("PER", "ORG", "LOC", "MISC"),
        splits=_CONLL_SPLITS,
        layouts=(
            {
                "train": ("train.txt",),
                "validation": ("valid.txt",),
                "test": ("test.txt",),
            },
            {
                "train": ("eng.train",),
                "validation": ("eng.testa",),
                "test": ("eng.testb",),
            },
        ),
        header=("tokens", "pos", "chunks", "ner"),
    ),
    TaskData(
        "wnut17",
        "tagging",
        (),
        ("tokens",),
        label="ner",
        label_names=_bio(
            "corporation", "creative-work", "group", "location", "person", "product"
        ),
        layouts=(
            {
                "train": ("wnut17train.conll",),
                "validation": ("emerging.dev.conll",),
                "test": ("emerging.test.annotated",),
            },
        ),
        header=("tokens", "ner"),
    ),
    TaskData(
        "ud_ewt",
        "tagging",
        (),
        ("tokens",),
        label="upos",
        label_names=_UPOS,
        metrics=("word_accuracy",),
        layouts=_UD_EWT,
        header=("id", "tokens", "lemma", "upos"),
    ),
    TaskData(
        "race",
        "multiple_choice",
        ("race/middle", "race/high"),
        ("article", "questions", "options"),
        label="answers",
        label_names=("A", "B", "C", "D"),
        splits=_CONLL_SPLITS,
        question="questions",
        layouts=(
            {
                "train": ("train/middle/*.txt", "train/high/*.txt"),
                "validation": ("dev/middle/*.txt", "dev/high/*.txt"),
                "test": ("test/middle/*.txt", "test/high/*.txt"),
            },
        ),
    ),
    TaskData(
        "swag",
        "multiple_choice",
        (),
        ("sent1", "sent2", *(f"ending{number}" for number in range(4))),
        label_names=("0", "1", "2", "3"),
        question="sent2",
        layouts=(
            {
                "train": ("train.csv",),
                "validation": ("val.csv",),
                "test": ("test.csv",),
            },
        ),
    ),
    _summaries("cnn_dailymail", "article", "highlights"),
    _summaries("xsum", "document", "summary"),
    _summaries("samsum", "dialogue", "summary"),
    TaskData(
        "multi30k",
        "text_to_text",
        (),
        ("en",),
        label="de",
        metrics=("bleu", "chrf"),
        layouts=tuple(
            {
                split: tuple(f"{name}.{language}{ending}" for language in ("en", "de"))
                for split, name in _MULTI30K.items()
            }
            for ending in ("", ".gz")
        ),
        prefix="translate English to German:",
        parallel=True,
    ),
    TaskData(
        "wikipedia",
        "text",
        ("wikipedia/20230601.en",),
        ("text",),
        None,
        splits={"train": "train"},
    ),
    TaskData(
        "lm1b",
        "text",
        ("lm1b",),
        ("text",),
        None,
        splits=_NO_VALIDATION,
    ),
)

# The columns of CoNLL-U up to those on which parsers are scored.
_UNIVERSAL = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel")
# The form of all data in SciBERT's repository.
_TXT = ({"train": ("train.txt",), "validation": ("dev.txt",), "test": ("test.txt",)},)


def _tagged(name, *types, **kwargs):
    header = ("tokens", "pos", "chunks", "ner")
    names = kwargs.pop("label_names", None) or _bio(*types)
    more = {"label_names": names, "layouts": _TXT, "header": header, **kwargs}
    return TaskData(name, "tagging", (), ("tokens",), label="ner", **more)


def _trees(name, layouts):
    more = {"layouts": layouts, "header": _UNIVERSAL}
    return TaskData(name, "parsing", (), ("tokens",), label="deprel", **more)


def _texts(name, names, kind="classification", metrics=("macro_f1",), **kwargs):
    columns = ("text", "first", "second") if kind == "relations" else ("text",)
    more = {"metrics": metrics, "layouts": _TXT, "json_lines": True, **kwargs}
    return TaskData(name, kind, (), columns, label_names=tuple(names.split()), **more)


_SCIENCE = (
    _tagged("bc5cdr", "Entity"),
    _tagged("jnlpba", "protein", "DNA", "RNA", "cell_line", "cell_type"),
    _tagged("ncbi_disease", "Disease"),
    _tagged(
        "scierc",
        *("Task", "Method", "Metric", "Material", "OtherScientificTerm", "Generic"),
    ),
    _tagged(
        "ebm_nlp",
        label_names=("O", "I-PAR", "I-INT", "I-OUT"),
        metrics=("word_macro_f1",),
    ),
    _trees("genia", _TXT),
    _trees("ud_ewt_trees", _UD_EWT),
    _texts(
        "chemprot",
        "ACTIVATOR AGONIST AGONIST-ACTIVATOR AGONIST-INHIBITOR ANTAGONIST "
        "DOWNREGULATOR INDIRECT-DOWNREGULATOR INDIRECT-UPREGULATOR INHIBITOR "
        "PRODUCT-OF SUBSTRATE SUBSTRATE_PRODUCT-OF UPREGULATOR",
        "relations",
        ("accuracy",),  # with one class for each example, this is the micro F1
        markers=("<<", ">>", "[[", "]]"),
    ),
    _texts(
        "scierc_relations",
        "COMPARE CONJUNCTION EVALUATE-FOR FEATURE-OF HYPONYM-OF PART-OF USED-FOR",
        "relations",
        markers=("[[", "]]", "<<", ">>"),
    ),
    _texts("acl_arc", "Background CompareOrContrast Extends Future Motivation Uses"),
    _texts("scicite", "background method result"),
)

_TRUTH = ("False", "True")


def _super_glue(name, kind, source, columns, label_names, **kwargs):
    more = {"json_lines": True, "super_glue": True, "label_names": label_names}
    parts = {"train": "train", "validation": "val", "test": "test"}
    more["layouts"] = ({part: (f"{file}.jsonl",) for part, file in parts.items()},)
    return TaskData(name, kind, (f"super_glue/{source}",), columns, **more | kwargs)


def _diagnostics(name, file, metrics):
    """Make a test part with the columns of RTE, for RTE's models."""
    more = {"splits": {"test": "test"}, "layouts": ({"test": (f"{file}.jsonl",)},)}
    more |= {"metrics": metrics, "prefix": "rte"}
    source = name.replace("_", "")
    return _super_glue(name, "classification", source, _NLI_PAIR, _ENTAILMENT, **more)


_NLI_PAIR = ("premise", "hypothesis")
_SPANS = ("text", "first", "second")
_SUPER_GLUE = (
    _super_glue("boolq", "classification", "boolq", ("passage", "question"), _TRUTH),
    _super_glue(
        "cb",
        "classification",
        "cb",
        _NLI_PAIR,
        ("entailment", "contradiction", "neutral"),
        metrics=("cb_f1", "accuracy"),
    ),
    _super_glue(
        "copa",
        "multiple_choice",
        "copa",
        ("premise", "question", "choice1", "choice2"),
        ("choice1", "choice2"),
        question="question",
    ),
    _super_glue("multirc", "answer_sets", "multirc", ("paragraph", "answer"), _TRUTH),
    _super_glue("record", "candidates", "record", ("passage", "query"), _TRUTH),
    # GLUE's task with other columns.
    _super_glue(
        "superglue_rte", "classification", "rte", _NLI_PAIR, _ENTAILMENT, prefix="rte"
    ),
    # A model compares the states of both words, or of noun and pronoun.
    _super_glue("wic", "relations", "wic", _SPANS, _TRUTH, metrics=("accuracy",)),
    _super_glue("wsc", "relations", "wsc.fixed", _SPANS, _TRUTH, metrics=("accuracy",)),
    _diagnostics("ax_b", "AX-b", ("matthews",)),
    _diagnostics("ax_g", "AX-g", ("accuracy", "gender_parity")),
)


def _open_questions(name, files, source=(), parts=None, **kwargs):
    """Make a task of open questions in the files of ORQA and DPR.

    Args:
        name: str.
        files: the beginnings of both kinds of names, and other layouts.
        source: see `TaskData`.
        parts: dict, names of splits in the source.
        **kwargs: other attributes.
    """
    orqa, dpr, *more = files
    splits = {"train": "train", "validation": "dev", "test": "test"}
    layouts = [
        {split: (pattern.format(part),) for split, part in splits.items()}
        for ending in ("", ".gz", ".zst")
        for pattern in (
            f"{orqa}.resplit.{{}}.jsonl{ending}",
            f"{dpr}-{{}}.qa.csv{ending}",
        )
    ]
    known = {"splits": parts} if parts else {}
    return TaskData(
        name,
        "open_questions",
        source,
        ("question",),
        label="answer",
        layouts=(*layouts, *more),
        **known,
        **kwargs,
    )


_OPEN = (
    _open_questions(
        "nq_open",
        (
            "NaturalQuestions",
            "nq",
            {
                "train": ("NQ-open.train.jsonl",),
                "test": ("NQ-open.dev.jsonl",),
            },
        ),
        ("natural_questions_open",),
        # Papers test on the published validation part. ORQA validates on the last
        # training questions, as many as here.
        {"train": "train[:79168]", "validation": "train[79168:]", "test": "validation"},
        prefix="nq",
    ),
    _open_questions(
        "web_questions",
        ("WebQuestions", "webquestions"),
        ("web_questions",),
        {"train": "train[:3417]", "validation": "train[3417:]", "test": "test"},
        prefix="wq",
    ),
    _open_questions(
        "curated_trec",
        ("CuratedT*", "curatedtrec"),
        patterns=True,
        metrics=("pattern_match",),
    ),
    _open_questions(
        "trivia_qa",
        (
            "TriviaQA",
            "trivia",
            *(
                {
                    "train": (f"{folder}unfiltered-web-train.json",),
                    "validation": (f"{folder}unfiltered-web-dev.json",),
                    "test": (f"{folder}unfiltered-web-test-without-answers.json",),
                }
                for folder in ("", "triviaqa-unfiltered/")
            ),
        ),
        ("trivia_qa/unfiltered.nocontext",),
        prefix="trivia",
    ),
    TaskData(
        "trivia_qa_reading",
        "question_answering",
        (),
        ("question", "context"),
        label="answers",
        splits={"train": "train", "validation": "validation"},
        layouts=tuple(
            {
                "train": (f"{folder}wikipedia-train.json",),
                "validation": (f"{folder}wikipedia-dev.json",),
            }
            for folder in ("qa/", "")
        ),
        evidence=True,
    ),
)

TASKS = {task.name: task for task in (*_ALL, *_SCIENCE, *_SUPER_GLUE, *_OPEN)}


def get_task(name: str | TaskData) -> TaskData:
    """Find the `TaskData` of a name: this library's, or one of `tensorflow_datasets`.

    Args:
        name: str, such as `"sst2"`, `"glue/sst2"`, `"squad/v2.0"`,
            `"wikipedia/20230601.de"`; or a `TaskData`, which is returned.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: for an unknown name.
    """
    if isinstance(name, TaskData):
        return name
    if name in TASKS:
        return TASKS[name]
    for task in TASKS.values():
        if name in task.source:
            return dataclasses.replace(task, source=(name,))
    family = name.split("/")[0]
    if "/" in name and family in TASKS and TASKS[family].kind == "text":
        return dataclasses.replace(TASKS[family], source=(name,))
    raise ValueError(
        f"`name` must be one of {sorted(TASKS)}, or the name of one of them in "
        f"tensorflow_datasets. Received: {name!r}."
    )
