"""Text to train on, and one way to score what every side has learned.

A side is asked for logits only: `logits(token_ids, padding_mask, positions)` takes int
arrays of shape `(BATCH, length)`, `(BATCH, length)` and `(BATCH, slots)`, and returns a
float array `(BATCH, slots, vocabulary_size)`. Rows, masks and scores are the same for
all.
"""

import dataclasses
import glob
import math
import pathlib
import re

import numpy as np

BATCH = 32
SENTENCE_LENGTH = 48
MASK_RATE, MASK_TOKEN_RATE, RANDOM_TOKEN_RATE = 0.15, 0.8, 0.1
SPECIAL_TOKENS = "[PAD]", "[CLS]", "[SEP]", "[MASK]"


@dataclasses.dataclass(frozen=True)
class MaskedRows:
    """Rows with masks, and what was there.

    Attributes:
        token_ids: int32 `(rows, length)`.
        padding_mask: int32 `(rows, length)`, 1 for tokens.
        positions: int32 `(rows, slots)`.
        labels: int32 `(rows, slots)`.
        weights: bool `(rows, slots)`, false for empty slots.
    """

    token_ids: np.ndarray
    padding_mask: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    def __len__(self):
        return len(self.token_ids)


def read_paragraphs(pattern, held_out_every=10):
    """Paragraphs of text files, in two parts by file.

    Args:
        pattern: str, a glob of text files with blank lines between paragraphs, or
            nearly none and a paragraph in each line.
        held_out_every: int. One of so many files is held out.

    Returns:
        Two lists, to train on and held out, of a list of str for each file.
    """
    paths = sorted(glob.glob(pattern))
    if len(paths) < 2:
        raise ValueError(
            f"`files` must match two files or more. Received: {pattern!r}, "
            f"which matches {len(paths)}."
        )
    parts = [], []
    for number, path in enumerate(paths):
        text = pathlib.Path(path).read_text(encoding="utf-8-sig", errors="replace")
        blocks, lines = re.split(r"\n\s*\n", text), text.splitlines()
        if len(lines) > 20 * len(blocks):
            blocks = lines
        blocks = (" ".join(block.split()) for block in blocks)
        parts[number % held_out_every == 0].append([*filter(None, blocks)])
    return parts


class HeldOut:
    """What every side is scored on, as ids of a vocabulary.

    Args:
        files: list of a list of paragraphs for each file.
        vocabulary: list of str, tokens of a lower-case WordPiece vocabulary.
        length: int. Tokens in a row.
        rows: int. Half of them are blocks of running text, half single paragraphs.
        sentences: int. How many the pseudo-perplexity is of.
        seed: int.
    """

    def __init__(self, files, vocabulary, length=128, rows=512, sentences=200, seed=0):
        import tokenizers

        self.ids = {token: number for number, token in enumerate(vocabulary)}
        self.vocabulary_size = len(vocabulary)
        self._tokenizer = tokenizers.BertWordPieceTokenizer(vocab=self.ids)
        rng = np.random.default_rng(seed)
        self.blocks = self._mask(self._blocks(files, length, rows // 2), length, rng)
        paragraphs = [text for paragraphs in files for text in paragraphs]
        chosen = self._chosen(paragraphs, rows // 2, range(8, 10**9), rng)
        self.paragraphs = self._mask([ids[: length - 2] for ids in chosen], length, rng)
        ends = r"(?<=[.!?])\s+"
        texts = [text for part in paragraphs for text in re.split(ends, part)]
        chosen = self._chosen(texts, sentences, range(5, SENTENCE_LENGTH - 1), rng)
        self.sentences = self._each_masked(chosen)

    def evaluate(self, logits):
        """Scores by logits.

        Args:
            logits: function, see above.

        Returns:
            Dict of `masked_accuracy`, that of `blocks` and of `paragraphs`, and
            `pseudo_perplexity` (per token; see `analysis.pseudo_log_likelihood`).
        """
        right, weights = {}, {}
        for part in ("blocks", "paragraphs"):
            rows = getattr(self, part)
            right[part] = int(scores(rows, logits)[0].sum())
            weights[part] = int(rows.weights.sum())
        _, log_probabilities = scores(self.sentences, logits)
        return {
            "masked_accuracy": sum(right.values()) / sum(weights.values()),
            **{part: right[part] / weights[part] for part in right},
            "pseudo_perplexity": math.exp(-log_probabilities.mean()),
        }

    def _encode(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _blocks(self, files, length, count):
        """Blocks at equal distances in the running text of all files."""
        stream = [
            token for file in files for text in file for token in self._encode(text)
        ]
        size = length - 2
        starts = np.linspace(0, len(stream) - size, count).astype(int)
        if len(stream) < size:
            raise ValueError(
                f"`files` must hold out {size} tokens or more. "
                f"Received: {len(stream)} tokens."
            )
        return [stream[start : start + size] for start in starts]

    def _chosen(self, texts, count, lengths, rng):
        """Ids of `count` texts, or of as many as there are, whose lengths fit."""
        found = []
        for number in rng.permutation(len(texts)):
            ids = self._encode(texts[number])
            if len(ids) in lengths:
                found.append(ids)
            if len(found) == count:
                break
        if not found:
            raise ValueError(
                f"`files` must hold out texts of {lengths.start} tokens or more. "
                "Received: none."
            )
        return found

    def _lay_out(self, sequences, length):
        """Rows between special tokens, and their padding masks."""
        pad, start, end, _ = (self.ids[token] for token in SPECIAL_TOKENS)
        token_ids = np.full((len(sequences), length), pad, "int32")
        for row, ids in zip(token_ids, sequences, strict=True):
            row[: len(ids) + 2] = [start, *ids, end]
        lengths = np.array([[len(ids) + 2] for ids in sequences])
        return token_ids, (np.arange(length) < lengths).astype("int32")

    def _mask(self, sequences, length, rng):
        """Rows masked as in BERT: 15 % of a row's tokens, 80/10/10."""
        token_ids, padding_mask = self._lay_out(sequences, length)
        mask_id = self.ids["[MASK]"]
        shape = len(sequences), max(1, round(MASK_RATE * (length - 2)))
        positions, weights = np.zeros(shape, "int32"), np.zeros(shape, "bool")
        for row, ids in enumerate(sequences):
            count = max(1, round(MASK_RATE * len(ids)))
            chosen = 1 + rng.choice(len(ids), count, replace=False)
            positions[row, :count], weights[row, :count] = np.sort(chosen), True
        labels = np.take_along_axis(token_ids, positions, axis=1)
        draws = rng.random(shape)
        random_ids = rng.integers(0, self.vocabulary_size, shape)
        kept = np.where(draws < MASK_TOKEN_RATE + RANDOM_TOKEN_RATE, random_ids, labels)
        new = np.where(draws < MASK_TOKEN_RATE, mask_id, kept)
        rows, slots = np.nonzero(weights)
        token_ids[rows, positions[rows, slots]] = new[rows, slots]
        return MaskedRows(token_ids, padding_mask, positions, labels, weights)

    def _each_masked(self, sequences):
        """A row for each token of each sequence, in which it alone is masked."""
        token_ids, padding_mask = self._lay_out(sequences, SENTENCE_LENGTH)
        rows = np.repeat(np.arange(len(sequences)), [len(ids) for ids in sequences])
        positions = np.concatenate([1 + np.arange(len(ids)) for ids in sequences])
        token_ids, padding_mask = token_ids[rows], padding_mask[rows]
        each = np.arange(len(rows))
        labels = token_ids[each, positions]
        token_ids[each, positions] = self.ids["[MASK]"]
        positions, labels = positions[:, None].astype("int32"), labels[:, None]
        weights = np.ones(positions.shape, "bool")
        return MaskedRows(token_ids, padding_mask, positions, labels, weights)


def scores(rows, logits):
    """How a model does on masked tokens.

    Args:
        rows: `MaskedRows`.
        logits: function, see above. All its batches are of one shape.

    Returns:
        Two arrays of as many numbers as there are masked tokens: whether each is
        predicted right, and the natural logarithm of its probability.
    """
    right, log_probabilities = [], []
    for start in range(0, len(rows), BATCH):
        index = np.minimum(np.arange(start, start + BATCH), len(rows) - 1)
        real = rows.weights[index].copy()
        real[len(rows) - start :] = False  # the last batch is filled up with its end
        labels = rows.labels[index][real]
        batch = rows.token_ids[index], rows.padding_mask[index], rows.positions[index]
        values = np.asarray(logits(*batch), "float32")[real]
        top = values.max(-1)
        total = np.exp(values - top[:, None]).sum(-1, dtype="float64")
        of_labels = values[np.arange(len(labels)), labels]
        right.append(values.argmax(-1) == labels)
        log_probabilities.append(of_labels - top - np.log(total))
    return np.concatenate(right), np.concatenate(log_probabilities)
