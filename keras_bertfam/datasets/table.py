"""What each task's data is called, by name and in files: facts, no code."""

from keras_bertfam.datasets.task_data import TaskData

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
# As Hugging Face has SQuAD, and as tables of it are written.
_QUESTION_TABLES = tuple(
    {part: (f"{part}*.{ending}",) for part in ("train", "validation")}
    for ending in ("parquet", "csv")
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
        # The corpus itself has two parts.
        layouts=(
            {
                "train": ("msr_paraphrase_train.txt",),
                "validation": ("msr_paraphrase_test.txt",),
                "test": ("msr_paraphrase_test.txt",),
            },
            _TSV,
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
        renamed={"is_duplicate": "label"},
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
        layouts=(
            {
                "train": ("en_ewt-ud-train.conllu",),
                "validation": ("en_ewt-ud-dev.conllu",),
                "test": ("en_ewt-ud-test.conllu",),
            },
            {
                "validation": ("en_ewt-ud-dev.conllu",),
                "test": ("en_ewt-ud-test.conllu",),
            },
        ),
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

TASKS = {task.name: task for task in _ALL}
