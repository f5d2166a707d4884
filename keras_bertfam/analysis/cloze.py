"""Ask masked language models for facts, by cloze tests."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.fact_files import MASK, OWN_FACTS, read_facts
from keras_bertfam.analysis.likelihood import encoded_rows, even_batches
from keras_bertfam.analysis.report import as_text
from keras_bertfam.arguments import checked
from keras_bertfam.tokenizers import pipeline_ops
from keras_bertfam.types import Model, Path, Tokenizer

_TOP = 10
_MEANS = ("mean of ", "mean in ")


@checked
def cloze_facts(
    task: Model,
    facts: Path | Mapping[str, Sequence[tuple[str, str]]] | None = None,
    *,
    vocabulary: Sequence[str] | None = None,
    batch_size: int = 64,
) -> "ClozeReport":
    """Ask a model for facts, each with a mask in place of its object.

    An object is found if it is the most probable of all candidates, the words of
    `vocabulary`. In typed querying the candidates are only the objects of the
    relation's facts.

    Scores of two models can be compared only if the models have the same candidates,
    and the same facts are left out. For that, give both the words that both know:
    `sorted({*single_token_words(a)} & {*single_token_words(b)})`. Then check that the
    reports' `left_out` and the texts of their `answers` are equal. For a cased and an
    uncased tokenizer they seldom are.

    A fact is left out, and counted in `left_out`, if its object isn't a single token of
    the tokenizer, isn't among the candidates, or if its mask is cut off. A tie counts
    as lost. If a text has several masks, the first one is asked.

    Args:
        task: a task with `fill_mask`, such as `keras_bertfam.tasks.MaskedLM`, and
            a preprocessor.
        facts: folder or archive of facts in LAMA's format, see
            `keras_bertfam.analysis.fact_files.read_facts`; or dict from names of
            relations to lists of tuples of a text with `[MASK]`, whatever the
            tokenizer's mask token is, and the object. `None` takes the library's own 58
            simple facts in English. A relation's name must differ from the names of
            means.
        vocabulary: list of str, the candidates. Words that aren't a single token are
            left out. `None` takes all words that are, see `single_token_words`.
        batch_size: int. Texts in a batch.

    Returns:
        A `ClozeReport`: precision at 1 and at 10 and mean reciprocal rank of each
        relation, and their means over relations, also by folder.

    Raises:
        ValueError: for a task that doesn't fill masks or has no preprocessor, facts in
            another form, or if all facts are left out.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    report = keras_bertfam.analysis.cloze_facts(
        model, {"animals": [("the [MASK] sat on the mat .", "cat")]})
    print(report)
    report.answers[0]["predicted"]
    ```

    References: [Petroni et al., 2019](https://arxiv.org/abs/1909.01066), section 4
    (here ranks among all candidates count, while the released code stops at 10,000;
    texts may have any length, while the released code leaves out texts without a
    template of over 100 words); [Kassner et al.,
    2021](https://arxiv.org/abs/2102.00894), section 3.
    """
    if not hasattr(task, "masked_lm_logits"):
        raise ValueError(
            "`task` must be a masked language model, which has `fill_mask`. Received: "
            f"{type(task).__name__}."
        )
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received one of None.")
    if not isinstance(facts, Mapping):
        facts = read_facts(OWN_FACTS if facts is None else facts)
    _check_facts(facts)
    tokenizer = task.preprocessor.tokenizer
    words = _words(tokenizer)
    if vocabulary is not None:
        if not all(isinstance(word, str) for word in vocabulary):
            raise ValueError(f"`vocabulary` must be strings. Received: {vocabulary!r}.")
        given = zip(_token_of(tokenizer, vocabulary), vocabulary, strict=True)
        words = {token: word for token, word in given if token in words}
    asked = _Asked(task, facts, [*words])
    ranks, typed, best = asked.ranks(batch_size)
    names, candidates = [*facts], [*words.values()]
    of = {name: asked.owners == k for k, name in enumerate(names)}
    return ClozeReport(
        ranks={name: ranks[rows] for name, rows in of.items()},
        typed_ranks={name: typed[rows] for name, rows in of.items()},
        left_out={n: len(facts[n]) - int(rows.sum()) for n, rows in of.items()},
        kinds={name: getattr(facts[name], "kind", None) for name in names},
        candidates=len(candidates),
        answers=[
            {
                "relation": names[owner],
                "text": text,
                "object": target,
                "predicted": candidates[said],
                "rank": int(rank),
            }
            for owner, (text, target), said, rank in zip(
                asked.owners, asked.pairs, best, ranks, strict=True
            )
        ],
    )


@checked
def single_token_words(tokenizer: Tokenizer) -> list[str]:
    """List the words that are a single token of a tokenizer within a text.

    Args:
        tokenizer: a tokenizer layer of any kind.

    Returns:
        List of str in the order of the ids, without the vocabulary's marks. Words have
        a letter or a digit. Special tokens and pieces of words don't count.

    Example:

    ```python
    from keras_bertfam.analysis.cloze import single_token_words
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    single_token_words(model.preprocessor.tokenizer)  # ["the", "a", "cat", ...]
    ```
    """
    return [*_words(tokenizer).values()]


def _words(tokenizer):
    """Give the words that are single tokens, by their ids."""
    special = {*pipeline_ops.special_token_ids(tokenizer)}
    special |= {*map(tokenizer.token_to_id, tokenizer.special_tokens)}
    words = {
        token: word
        for token, string in enumerate(pipeline_ops.token_strings(tokenizer))
        if any(map(str.isalnum, word := string.replace("▁", " ").strip()))
        and token not in special
    }
    # Pieces of words and unknown tokens become other tokens if they stand alone.
    alone = _token_of(tokenizer, [*words.values()])
    pairs = zip(words.items(), alone, strict=True)
    return {token: word for (token, word), found in pairs if token == found}


def _token_of(tokenizer, words):
    """Give the id of each word that is one token in a text, `None` for others."""
    if not len(words):
        return []
    texts = [pipeline_ops.word_prefix(tokenizer) + word.strip() for word in words]
    rows = pipeline_ops.tokenize(tokenizer, texts)
    sizes, starts = rows.row_lengths().numpy(), rows.row_starts().numpy()
    ids = np.append(
        rows.flat_values.numpy(), 0
    )  # the beginning of an empty row at the end
    return [
        int(token) if size == 1 else None
        for token, size in zip(ids[starts], sizes, strict=True)
    ]


def _check_facts(facts):
    for name, pairs in facts.items():
        if name == "mean" or name.startswith(_MEANS):
            raise ValueError(
                "`facts` must have no relation with the name of a mean. Received: "
                f"{name!r}."
            )
        for pair in pairs:
            two = isinstance(pair, (tuple, list)) and len(pair) == 2
            if not two or not all(isinstance(text, str) for text in pair):
                break
            if MASK not in pair[0]:
                break
        else:
            continue
        raise ValueError(
            f"`facts` must have tuples of a text with {MASK} and an object. Received "
            f"for {name!r}: {pair!r}."
        )


def _folder(name):
    """Give the folder of a relation, which may precede its label."""
    return name.partition(", ")[0].rpartition("/")[0]


class _Asked:
    """Hold the facts for which a model can be asked, as rows.

    Args:
        task: see `cloze_facts`.
        facts: dict from relations to pairs.
        candidates: list of the ids of the candidates.

    Attributes:
        pairs: list of the facts that are left.
        owners: int array, the number of each fact's relation.
    """

    def __init__(self, task, facts, candidates):
        tokenizer = task.preprocessor.tokenizer
        pairs = [tuple(pair) for given in facts.values() for pair in given]
        sizes = [*map(len, facts.values())]
        owners = np.repeat(np.arange(len(sizes)), sizes)
        places = {token: place for place, token in enumerate(candidates)}
        tokens = _token_of(tokenizer, [target for _, target in pairs])
        targets = np.array([places.get(token, -1) for token in tokens], int)
        kept = np.flatnonzero(targets >= 0)
        if len(kept):
            mask = tokenizer.mask_token
            texts = [pairs[k][0].replace(MASK, mask) for k in kept]
            inputs, _ = encoded_rows(task, texts)
            masked = inputs["token_ids"] == tokenizer.mask_token_id
            there = masked.any(axis=1)
            self._inputs = {name: value[there] for name, value in inputs.items()}
            positions = masked[there].argmax(axis=1).astype("int32")
            self._inputs["mask_positions"] = positions[:, None]
            kept = kept[there]
        if not len(kept):
            raise ValueError(
                "`facts` must have at least one fact whose object is a single token "
                "of the vocabulary, and whose mask isn't cut off. Received: "
                f"{len(pairs)} facts, {len(candidates)} words."
            )
        self._task, self._candidates = task, np.array(candidates)
        self.pairs, self.owners = [pairs[k] for k in kept], owners[kept]
        self._targets = targets[kept]
        self._typed = np.zeros((len(sizes), len(candidates)), bool)
        self._typed[self.owners, self._targets] = True

    def ranks(self, batch_size):
        """Compute ranks, among all candidates and among objects; give first words."""
        ranks, typed, best = (np.zeros(len(self.pairs), int) for _ in range(3))
        each = np.arange(batch_size)
        padding = self._inputs["padding_mask"]
        lengths = padding.shape[1] - padding[:, ::-1].argmax(axis=1)
        order = np.argsort(lengths, kind="stable")
        for index, _ in even_batches(len(self.pairs), batch_size):
            index = order[index]
            # Rows are as wide as the longest one, rounded to few widths.
            width = 2 ** math.ceil(math.log2(lengths[index].max()))
            batch = {name: value[index, :width] for name, value in self._inputs.items()}
            logits = ops.convert_to_numpy(self._task.masked_lm_logits(batch)[:, 0])
            scores = logits[:, self._candidates]
            # Count the scores that aren't less, the object's own included: ties are
            # lost, and so is NaN.
            before = ~(scores < scores[each, self._targets[index], None])
            ranks[index] = before.sum(axis=1)
            typed[index] = (before & self._typed[self.owners[index]]).sum(axis=1)
            best[index] = scores.argmax(axis=1)
        return ranks, typed, best


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ClozeReport:
    """Holds the result of `cloze_facts()`. As a string it is a table.

    Attributes:
        ranks: dict from relations to int arrays `(facts,)`: the place of each fact's
            object among the candidates, from 1.
        typed_ranks: the same, among the objects of the relation.
        left_out: dict from relations to ints, how many facts weren't asked.
        kinds: dict from relations to their types, such as `"N-1"`, or `None`.
        candidates: int. The number of candidates.
        answers: list of dicts, one for each fact that was asked: its `relation`,
            `text` and `object`, the word that was `predicted`, and its `rank`.

    Example:

    ```python
    from keras_bertfam.analysis.cloze import ClozeReport
    report = ClozeReport(
        {"color": np.array([1, 4])}, {"color": np.array([1, 2])}, {"color": 0},
        {"color": "N-1"}, 9, [])
    report.scores["mean"]  # {"P@1": 0.5, "P@10": 1.0, "MRR": 0.625, "typed P@1": 0.5}
    ```
    """

    ranks: dict[str, np.ndarray]
    typed_ranks: dict[str, np.ndarray]
    left_out: dict[str, int]
    kinds: dict[str, str | None]
    candidates: int
    answers: list[dict[str, Any]]

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Precision at 1 and 10, mean reciprocal rank, and precision of typed querying.

        There are scores for each relation (`nan` without a fact), and means over the
        relations that have facts: over all; for each type, such as `"mean of N-1"`; and
        for each folder, such as `"mean in TREx"`, if there are several. LAMA's paper
        has a mean for each folder.
        """
        found = {name: self._of_relation(name) for name in self.ranks}
        for title, names in self._groups().items():
            each = [found[name] for name in names if len(self.ranks[name])]
            found[title] = {
                column: float(np.mean([scores[column] for scores in each]))
                for column in each[0]
            }
        return found

    def _of_relation(self, name):
        ranks, typed = self.ranks[name], self.typed_ranks[name]
        columns = {
            "P@1": ranks == 1,
            f"P@{_TOP}": ranks <= _TOP,
            "MRR": 1 / ranks,
            "typed P@1": typed == 1,
        }
        return {
            column: float(values.mean()) if len(ranks) else float("nan")
            for column, values in columns.items()
        }

    def _groups(self):
        """Give the names of the relations of each mean."""
        asked = [name for name, ranks in self.ranks.items() if len(ranks)]
        folders = {name: _folder(name) for name in self.ranks}
        groups = {}
        for title, of in zip(_MEANS, (self.kinds, folders), strict=True):
            values = dict.fromkeys(value for name in asked if (value := of[name]))
            for value in values if len(values) > 1 else ():
                groups[f"{title}{value}"] = [k for k in self.ranks if of[k] == value]
        return groups | {"mean": [*self.ranks]}

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Give the names of the columns, and the rows: relations and means."""
        scores, groups = self.scores, self._groups()
        rows = []
        for name, values in scores.items():
            names = groups.get(name, [name])
            asked = sum(len(self.ranks[each]) for each in names)
            left_out = sum(self.left_out[each] for each in names)
            rows.append([name, asked, left_out, *values.values()])
        return ["relation", "facts", "left out", *scores["mean"]], rows

    @property
    def title(self) -> str:
        """Describe in a line what was measured."""
        precision = self.scores["mean"]["P@1"]
        asked = [ranks for ranks in self.ranks.values() if len(ranks)]
        return (
            f"P@1 {precision:.4g}, the mean of {len(asked)} relation(s); "
            f"{len(self.answers)} facts, {sum(self.left_out.values())} left out; "
            f"{self.candidates} candidates"
        )

    def __repr__(self) -> str:
        return f"{self.title}\n{as_text(*self.table())}"

    def plot(self, path: Path | None = None) -> Any:
        """Draw the precision of each relation and of the means.

        Args:
            path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
                `None`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        figure, [axes] = plots.new_figure(1)
        scores = self.scores
        places = np.arange(len(scores))
        columns = (f"P@{_TOP}", "P@1", "typed P@1")
        for shift, column in enumerate(columns):
            values = [each[column] for each in scores.values()]
            axes.barh(places + 0.25 * (shift - 1), values, height=0.25, label=column)
        if len(scores) <= 5 * plots.MOST_IN_CELLS:
            axes.set_yticks(places, [*scores])
        axes.set(xlabel="share that is found", xlim=(0, 1))
        axes.invert_yaxis()
        plots.legend_beside(axes)
        return plots.written(figure, path)
