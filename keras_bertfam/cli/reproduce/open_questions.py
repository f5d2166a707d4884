"""Reproduce REALM's table 1: retrievers, and how many questions they help to answer.

Keras is imported only when something is trained: requests are checked without it.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from keras_bertfam import datasets, metrics, parsing
from keras_bertfam.cli.inputs import check_files
from keras_bertfam.cli.reproduce.measures import Measure
from keras_bertfam.cli.reproduce.paper_tables import PaperTable, Row
from keras_bertfam.cli.reproduce.studies import Request, Study
from keras_bertfam.cli.runs import (
    PRECISIONS,
    PretrainingRun,
    as_field_type,
    check_choice,
    with_recipe,
)
from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.text_files.sources import suffix_of
from keras_bertfam.types import Config
from keras_bertfam.whole_files import write_text

# For each set of questions, where it may be in the folder, and its name.
SETS = {
    "squad": (("squad", "squad11"), "SQuAD"),
    "nq_open": (("nq_open", "nq"), "NQ"),
    "web_questions": (("web_questions", "webq"), "WQ"),
    "curated_trec": (("curated_trec", "trec"), "CT"),
    "trivia_qa": (("trivia_qa", "trivia"), "TQA"),
}
ROWS = {
    "BM25": Row(),
    "ICT": Row(),
    "ORQA": Row(figures=(33.3, 36.4, 30.1)),
    "REALM": Row(figures=(39.2, 40.2, 46.8)),
    "T5 without passages": Row(figures=(34.5, 37.4, None)),
}
_RECALLS = (1, 5)
# Capitalised words inside sentences count as names: there is no tagger here.
_NAME = re.compile(r"(?<=[a-z,;] )([A-Z]\w+(?: [A-Z]\w+)*)")
_MARKED = r"⟦\1⟧"
_TRIES = 20  # passages that BM25 finds, to look for a pattern in


@dataclasses.dataclass
class Settings:
    """Hold the settings that can be changed for all rows.

    Attributes:
        preset: of the encoder with which all rows but T5's begin, or `None` for a small
            BERT that is trained on the passages.
        t5_preset: the same for T5's rows.
        size: of both models, see `PretrainingRun`.
        vocabulary_size: int, of both models.
        pretraining_steps: int. Steps of both models on the passages' text.
        ict_steps: int. Steps of the inverse cloze task.
        realm_steps: int. Steps of REALM's pre-training. The index is rebuilt halfway.
        question_steps: int. Steps on questions and answers.
        batch_size: int. Questions in a step, and texts in a step of REALM's.
        text_batch_size: int. Rows in a step of pre-training, and queries in a step of
            the inverse cloze task.
        passage_length: int. Tokens of a passage.
        query_length: int. Tokens of a question. Longer ones are cut.
        num_passages: int. Passages that are read for a question.
        normalization: `"joint"` or `"passage"`, see `OpenQuestionAnswering`. With
            `"passage"` a reader can't tell that a passage lacks the answer: its
            retriever must, and BM25's passages have equal probabilities.
        pooling: of the retriever's vectors, see `DualEncoder`.
        projection_dim: int or `None`, see `DualEncoder`.
        learning_rate: float, the peak for questions, ICT and REALM.
        limit: int. The most questions to test on.
        precision: `"float32"`, `"bfloat16"` or `"float16"`, of all models.
    """

    preset: str | None = None
    t5_preset: str | None = None
    size: str = "tiny"
    vocabulary_size: int = 4000
    pretraining_steps: int = 600
    ict_steps: int = 300
    realm_steps: int = 100
    question_steps: int = 300
    batch_size: int = 8
    text_batch_size: int = 32
    passage_length: int = 160
    query_length: int = 48
    num_passages: int = 5
    normalization: str = "joint"
    # With these two a model that trains for minutes learns soonest.
    pooling: str = "mean"
    projection_dim: int | None = None
    learning_rate: float = 2e-4
    limit: int = 1000
    precision: str = "float32"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            setattr(self, field.name, as_field_type(field.name, field.type, value))
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not value > 0:
                raise ValueError(f"`{field.name}` must be positive. Received: {value}.")
        check_choice("normalization", self.normalization, ("joint", "passage"))
        check_choice("precision", self.precision, PRECISIONS)

    def scaled(self, scale: float) -> "Settings":
        """Multiply all numbers of steps; each stays at least 2."""
        steps = {
            name: max(2, round(value * scale))
            for name, value in dataclasses.asdict(self).items()
            if name.endswith("_steps")
        }
        return dataclasses.replace(self, **steps)


class OpenTable(PaperTable):
    """Describe a table of open questions."""

    measures = {
        f"{name}_{column}": Measure(f"{said} {title}", lambda trained: None)
        for name, (_, said) in SETS.items()
        for column, title in (
            *((f"recall_{count}", f"recall@{count}") for count in _RECALLS),
            ("exact_match", "exact match"),
        )
    }


class OpenQuestions(Study):
    """Fill REALM's table 1 for the sets of questions in a folder.

    The passages of SQuAD's questions are all its paragraphs. The other sets need
    `data`: DPR's files (`.tsv`, with `id`, `text` and `title`), or files of texts. In
    the rows of BM25 and ICT only a reader learns from questions and answers, and the
    retriever stays as it is. ORQA also trains the tower of the questions. REALM does
    so, too, and begins with its own pre-training.

    Args:
        request: `Request`.
    """

    def __init__(self, request: Request) -> None:
        self._table = PaperTable()
        fields = {field.name for field in dataclasses.fields(Settings)}
        parsing.check_keys("`set`", request.changes, (), fields)
        self.given = Settings(**request.changes)
        self.options = self.given.scaled(1.0)
        names = [name for name in SETS if (name == "squad") != bool(request.data)]
        self.places = {
            name: place
            for name in names
            if (place := _find(request.labelled, name)) is not None
        }
        if not self.places:
            raise ValueError(
                f"`labelled` must be a folder that has some of {names}, "
                f"{'whose passages are the data' if request.data else 'or come with '}"
                f"{'' if request.data else '`data`, the passages of other questions'}. "
                f"Received: {request.labelled!r}."
            )
        if request.held_out or request.sizes:
            raise ValueError(
                "`held_out` and `sizes` must be left out for this table. Received: "
                f"held_out={[*request.held_out]}, sizes={[*request.sizes]}."
            )
        check_files("data", request.data)
        self._table = OpenTable(
            source="Guu et al., 2020, table 1, exact match",
            columns=[c for c in OpenTable.measures if c.startswith((*self.places,))],
            figures=["NQ", "WQ", "CT"],
            rows=ROWS,
        )
        super().__init__(request)
        self.options = self.given.scaled(request.scale)
        self._loaded: Any = None

    @property
    def table(self) -> PaperTable:
        return self._table

    def settings(self, row: str, seed: int) -> Config:
        data = [*self.request.data]
        return {
            **dataclasses.asdict(self.options),
            "sets": [*self.places],
            "labelled": str(self.request.labelled),
            "data": data,
        }

    @property
    def passages(self) -> list[Any]:
        """The passages without duplicates: strings, or tuples of title and text."""
        return self._data()[0]

    def _data(self):
        """Read the passages, and each set's questions to train and to test on."""
        if self._loaded is None:
            asked = {name: load(name, place) for name, place in self.places.items()}
            if self.request.data:
                passages = read_passages(self.request.data)
            else:
                parts = asked["squad"]
                contexts = [c for part in parts for c in part.x["context"]]
                passages = [c.strip() for c in contexts]
            passages = [*dict.fromkeys(passages)]
            questions = {
                name: tuple(map(_questions, parts)) for name, parts in asked.items()
            }
            self._loaded = passages, questions
        return self._loaded

    def score(self, row: str, seed: int) -> Config:
        import keras

        keras.config.set_dtype_policy(PRECISIONS[self.options.precision])
        passages, questions = self._data()
        found: Config = {}
        for name, (train, test) in questions.items():
            self.request.report(f"{row} on {SETS[name][1]}:")
            rng_order = _shuffled(len(test[0]), 1)[: self.options.limit]
            chosen = tuple([column[k] for k in rng_order] for column in test)
            patterns = TASKS[name].patterns
            if patterns:
                train = texts_of_patterns(train, passages)
            made = _ROWS[row](self, row, name, seed, train, chosen[0])
            said, texts = made
            scores = metrics.open_question_scores(chosen[1], said, patterns)
            found[f"{name}_exact_match"] = scores["exact_match"]
            recalls: Config = {}
            if texts is not None:
                recalls = metrics.answer_recall(texts, chosen[1], _RECALLS, patterns)
            for count in _RECALLS:
                found[f"{name}_recall_{count}"] = recalls.get(f"recall@{count}")
        return found

    # === What rows begin with ===

    def pretrained(self, name: str, seed: int) -> str:
        """Pre-train BERT or T5 on passages, if it isn't done yet; give the preset."""
        from keras_bertfam.cli import pretraining
        from keras_bertfam.cli.reproduce.word_search import as_text

        options = self.options
        family = "t5" if name == "t5" else "bert"
        given = options.t5_preset if family == "t5" else options.preset
        if given is not None:
            return given
        place = self.place(name, seed)
        if os.path.isdir(place):
            return place
        texts = os.path.join(self.request.output, "passages.txt")
        lines = ("\n".join(as_text(p).split("\n")) for p in self.passages)
        plain = (re.sub(r"\s*\n\s*", " ", line) for line in lines)
        write_text(texts, "\n\n".join(plain) + "\n")
        settings: Config = {
            "family": family,
            "objective": "mlm" if family == "bert" else "random_spans",
            "size": options.size,
            "vocabulary_size": options.vocabulary_size,
            "files": (texts,),
            "output": place,
            "seed": seed,
            "resume": True,
            "epochs": 1,
            "steps_per_epoch": options.pretraining_steps,
            "sequence_length": 128,
            "batch_size": options.text_batch_size,
            "precision": options.precision,
        }
        if family == "bert":
            settings["strategy"] = "tokens"
            settings["backbone_arguments"] = {"initializer_range": 0.05}
        else:
            settings["optimizer_arguments"] = {"optimizer": "adamw"}
        run = PretrainingRun.of(with_recipe("quick", settings), f"of {name}")
        self.request.report(f"Pre-training {name} on the passages.")
        pretraining.pretrain(run, lambda line: None)
        return place

    def retriever(self, preset: str) -> Any:
        """Make a retriever from an encoder's preset, with one tower for both sides."""
        from keras_bertfam import tasks

        options = self.options
        model = tasks.DualEncoder.from_preset(
            preset, projection_dim=options.projection_dim, pooling=options.pooling
        )
        model.preprocessor = tasks.DualEncoderPreprocessor(
            model.preprocessor.tokenizer,
            options.passage_length,
            options.query_length,
            seed=0,
        )
        return model

    def cloze(self, seed: int) -> Any:
        """Train a retriever by the inverse cloze task, if it isn't done yet."""
        import tensorflow as tf

        from keras_bertfam import tasks
        from keras_bertfam.cli.reproduce.word_search import as_text

        place = self.place("ict", seed)
        if os.path.isdir(place):
            return tasks.DualEncoder.from_preset(place)
        model = self.retriever(self.pretrained("bert", seed))
        texts = tf.data.Dataset.from_tensor_slices([*map(as_text, self.passages)])
        size = min(self.options.text_batch_size, max(2, len(self.passages) // 4))
        data = model.preprocessor.dataset(texts, size).repeat()
        self.fit(model, data, self.options.ict_steps)
        model.save_to_preset(place)
        return model

    def fit(self, model: Any, data: Any, steps: int) -> None:
        """Train a model on batches for `steps` steps."""
        self.compile(model, steps)
        model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)

    def compile(self, model: Any, steps: int) -> None:
        """Compile a model for `steps` steps."""
        from keras_bertfam.optimizers import pretraining_optimizer

        rate = self.options.learning_rate
        optimizer = pretraining_optimizer(
            rate, steps, warmup_steps=max(1, steps // 10), bias_correction=True
        )
        model.compile(optimizer, jit_compile=False)

    def knowledge(self, seed: int) -> tuple[Any, Any]:
        """Pre-train REALM, if it isn't done yet; give its reader and its retriever."""
        import tensorflow as tf

        from keras_bertfam import layers, models, retrieval, tasks
        from keras_bertfam.cli.reproduce.word_search import as_text

        place = self.place("realm", seed)
        if os.path.isdir(place):
            known = tasks.KnowledgeAugmentedMaskedLM.from_preset(place)
            return known.backbone, known.retriever
        options, retriever = self.options, self.cloze(seed)
        reader = models.Backbone.from_preset(self.pretrained("bert", seed))
        index = retrieval.Index.build(self.passages, retriever)
        search = tasks.PassageSearch(retriever, index)
        preprocessor = tasks.KnowledgeAugmentedMaskedLMPreprocessor(
            retriever.preprocessor.tokenizer,
            sequence_length=min(64, options.passage_length),
            passage_length=options.passage_length,
            num_candidates=min(max(2, options.num_passages), len(self.passages)),
            seed=seed,
        )
        preprocessor.search = search
        model = tasks.KnowledgeAugmentedMaskedLM(reader, preprocessor, retriever)
        texts = [_NAME.sub(_MARKED, as_text(passage)) for passage in self.passages]
        rows = tf.data.Dataset.from_tensor_slices(texts)
        rows = rows.map(layers.mark_dates).enumerate()
        rows = rows.map(lambda number, text: {"text": text, "source": number})
        rows = rows.filter(
            lambda row: tf.strings.regex_full_match(row["text"], "(?s).*⟦.*")
        )
        data = preprocessor.dataset(rows, options.batch_size).repeat()
        half = max(1, options.realm_steps // 2)
        self.compile(model, 2 * half)
        model.fit(data, steps_per_epoch=half, verbose=0)
        search.adopt(retrieval.Index.build(self.passages, retriever), None, half)
        # The second epoch, so that it reads on where the first has ended.
        model.fit(data, epochs=2, initial_epoch=1, steps_per_epoch=half, verbose=0)
        model.save_to_preset(place)
        return self.knowledge(seed)  # as a row that was resumed has them

    # === Rows ===

    def read(
        self,
        row: str,
        seed: int,
        train: Any,
        asked: Sequence[str],
        begin: Callable[[], tuple[Any, Any]],
        by_words: bool = False,
        frozen: bool = False,
    ) -> tuple[list[str], list[list[str]]]:
        """Train a reader on questions, and let it answer.

        Args:
            row: str.
            seed: int.
            train: tuple of questions and their answers.
            asked: questions.
            begin: function that gives the reader's backbone and the retriever.
            by_words: bool. Whether BM25 finds passages.
            frozen: bool. Whether the retriever stays as it is.

        Returns:
            A tuple of the answers and the texts of the passages that were found.
        """
        from keras_bertfam import retrieval, tasks
        from keras_bertfam.cli.reproduce.word_search import WordSearch

        options = self.options
        reader, retriever = begin()
        retriever.trainable = not frozen
        search: tasks.PassageSearch
        if by_words:
            search = WordSearch(retriever, self.passages)
        else:
            index = retrieval.Index.build(self.passages, retriever)
            search = tasks.PassageSearch(retriever, index)
        length = options.passage_length + options.query_length
        positions = getattr(reader, "max_sequence_length", None) or length
        preprocessor = tasks.OpenQuestionAnsweringPreprocessor(
            retriever.preprocessor.tokenizer,
            sequence_length=min(length, positions),
            num_passages=min(options.num_passages, len(self.passages)),
            seed=seed,
        )
        preprocessor.search = search
        model = tasks.OpenQuestionAnswering(
            reader, preprocessor, retriever, normalization=options.normalization
        )
        room = options.query_length - 2
        train = [cut_words(q, preprocessor.tokenizer, room) for q in train[0]], train[1]
        asked = [cut_words(q, preprocessor.tokenizer, room) for q in asked]
        data = preprocessor.dataset(train, options.batch_size).repeat()
        self.fit(model, data, options.question_steps)
        answers = [a["text"] for a in model.predict(asked, batch_size=8, verbose=0)]
        count = min(max(_RECALLS), len(self.passages))
        found = []
        for k in range(0, len(asked), 64):
            query = retriever.preprocessor.encode_texts("query", asked[k : k + 64])
            numbers = search.find(query, count)
            found += [[_text_of(search.passages[n]) for n in each] for each in numbers]
        return answers, found

    def encoder(self, seed: int) -> Any:
        """Load the encoder that readers begin with."""
        from keras_bertfam import models

        return models.Backbone.from_preset(self.pretrained("bert", seed))

    def by_words(self, row, name, seed, train, asked):
        def begin():
            preset = self.pretrained("bert", seed)
            return self.encoder(seed), self.retriever(preset)

        return self.read(row, seed, train, asked, begin, by_words=True, frozen=True)

    def by_cloze(self, row, name, seed, train, asked):
        def begin():
            return self.encoder(seed), self.cloze(seed)

        return self.read(row, seed, train, asked, begin, frozen=row == "ICT")

    def by_knowledge(self, row, name, seed, train, asked):
        return self.read(row, seed, train, asked, lambda: self.knowledge(seed))

    def by_heart(self, row, name, seed, train, asked):
        """Let T5 write answers without any passage."""
        from keras_bertfam import optimizers, tasks
        from keras_bertfam.cli import finetuning_text
        from keras_bertfam.cli.prediction import write_texts

        options = self.options
        preset = self.pretrained("t5", seed)
        model = finetuning_text.make_model(TASKS["nq_open"], preset)
        examples = Examples(*train, TASKS["nq_open"])
        pairs = finetuning_text.prepare(model, examples)
        model.preprocessor.seed = seed
        assert isinstance(model, tasks.TextToText)
        model.compile(optimizers.AdamW(1e-3, clipnorm=1.0), jit_compile=False)
        data = model.preprocessor.dataset(pairs, 4 * options.batch_size).repeat()
        model.fit(data, epochs=1, steps_per_epoch=options.question_steps, verbose=0)
        inputs, _ = datasets.as_text_pairs(Examples([*asked], None, TASKS["nq_open"]))
        return write_texts(model, inputs), None


_ROWS = {
    "BM25": OpenQuestions.by_words,
    "ICT": OpenQuestions.by_cloze,
    "ORQA": OpenQuestions.by_cloze,
    "REALM": OpenQuestions.by_knowledge,
    "T5 without passages": OpenQuestions.by_heart,
}
STUDY = OpenQuestions


def _text_of(passage):
    """Give a passage's text, in which alone DPR's code looks for answers."""
    return passage if isinstance(passage, str) else passage[1]


def _find(folder, name):
    places = [os.path.join(folder, each) for each in SETS[name][0]] if folder else []
    return next((place for place in places if os.path.isdir(place)), None)


def load(name: str, place: str) -> tuple[Examples, Examples]:
    """Load questions to train and to test on.

    If SQuAD's training part is missing, the first half of the validation articles is
    trained on.

    Args:
        name: a key of `SETS`.
        place: its folder.
    """
    if name != "squad":
        # Papers test on TriviaQA's validation part: its test part has no answers.
        part = "validation" if name == "trivia_qa" else "test"
        return (
            datasets.load_examples(name, "train", place),
            datasets.load_examples(name, part, place),
        )
    test = datasets.load_examples(name, "validation", place)
    try:
        return datasets.load_examples(name, "train", place), test
    except FileNotFoundError:
        return test.split_articles(len({*test.titles}) // 2)


def _questions(examples):
    """Give questions and their answers, without those that have none."""
    x, y = examples.x, examples.y
    if isinstance(x, dict):
        x, y = x["question"], [[*dict.fromkeys(each["text"])] for each in y]
    if y is None:
        raise ValueError(
            f"{examples.task.name!r} must have answers in its parts to train and to "
            "test on. Received: none."
        )
    pairs = [(q.strip(), a) for q, a in zip(x, y, strict=True) if a]
    return [q for q, _ in pairs], [a for _, a in pairs]


def _shuffled(count, seed):
    import numpy as np

    return np.random.default_rng(seed).permutation(count).tolist()


def read_passages(paths: Sequence[str]) -> list[Any]:
    """Read passages: lines of DPR's tables, or documents of text files.

    Args:
        paths: paths of files. Those that end in `.tsv` or `.tsv.gz` begin with a line
            of `id`, `text` and `title`.

    Returns:
        A list of tuples of title and text, or of strings.

    Raises:
        ValueError: for a table with other columns.
    """
    from keras_bertfam.datasets import files
    from keras_bertfam.layers import read_documents

    passages: list[Any] = []
    for path in paths:
        if suffix_of(path) != ".tsv":
            read = read_documents(path).as_numpy_iterator()
            passages += [text.decode() for text in read]
            continue
        for number, values in files.read_records(path, "\t"):
            if number == 1:
                if values != ["id", "text", "title"]:
                    raise ValueError(
                        f"{path!s} must begin with a line of id, text and title. "
                        f"Received: {values}."
                    )
                continue
            if len(values) != 3:
                raise ValueError(
                    f"{path!s}, line {number}: expected id, text and title. Received: "
                    f"{values}."
                )
            passages.append((values[2], values[1]) if values[2] else values[1])
    return passages


def texts_of_patterns(
    asked: tuple[list[str], list[list[str]]], passages: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Find texts that patterns match in BM25's passages, as answers to train on.

    Args:
        asked: tuple of questions and lists of patterns.
        passages: list of passages.

    Returns:
        The same with texts. Questions for which no text is found are left out.
    """
    from keras_bertfam.cli.reproduce.word_search import WordIndex, as_text
    from keras_bertfam.metrics.open_questions import Patterns

    texts, known = [*map(as_text, passages)], Patterns()
    found = WordIndex(texts).search(asked[0], _TRIES)
    pairs = []
    for question, patterns, numbers in zip(*asked, found, strict=True):
        matches = (known.found(p, texts[n]) for n in numbers for p in patterns)
        answers = [*dict.fromkeys(text for text in matches if text.strip())]
        if answers:
            pairs.append((question, answers))
    known.warn()
    return [q for q, _ in pairs], [a for _, a in pairs]


def cut_words(text: str, tokenizer: Any, room: int) -> str:
    """Cut the last words of a text until it has at most `room` tokens."""
    words = text.split()
    while len(words) > 1 and len(tokenizer(" ".join(words))) > room:
        words.pop()
    return " ".join(words)
