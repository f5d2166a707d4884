"""Draws what each paper is known for, most often its objective, for the paper's page.

A picture is data: blocks of bands, which are rows of cells, boxes, arrows and lines of
text; the cells of a block stand in columns. What is masked, replaced, moved or seen in
it is computed by the library's own layers, from a seed. `hooks.py` puts the pictures
into the pages. `python docs/objectives.py bert` prints one.
"""

import dataclasses
import html
import inspect
import sys
import warnings

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bertfam import layers, models, tasks, tokenizers
from keras_bertfam.layers.attention.disentangled import rows_by_distance
from keras_bertfam.layers.attention.masks import (
    causal_mask,
    same_sequence,
    two_stream_mask,
)
from keras_bertfam.layers.attention.windows import neighbours_in_rows, tokens_at
from keras_bertfam.layers.corruption.delete_words import DeleteWords
from keras_bertfam.layers.corruption.diffuse_tokens import DiffuseTokens
from keras_bertfam.layers.corruption.sample_contexts import SampleContexts
from keras_bertfam.layers.data.documents.shares import sampling_shares
from keras_bertfam.layers.data.pairs.sentence_pairs import PairSegments
from keras_bertfam.layers.heads.replaced_tokens import SampleTokens, replace_at
from keras_bertfam.layers.recurrent.two_streams import visible_keys
from keras_bertfam.models.families.distilbert import teacher_layers
from keras_bertfam.tasks.retrieval.marginals import sequence_marginal, token_marginal

# What pictures are made of.


@dataclasses.dataclass(frozen=True)
class Cell:
    """A token, or anything else that stands in a column.

    `kind` says how it is drawn: "token", "first" or "second" of two segments,
    "special", "mask", "noise" (replaced or moved), "kept" (selected, yet as it was; or
    what the picture is about), "target", "seen", "unseen", "bare" (text alone) or "gap"
    (nothing).
    """

    text: str = ""
    kind: str = "token"


@dataclasses.dataclass(frozen=True)
class Row:
    """Cells side by side. Those of an attention mask are `slim`."""

    label: str
    cells: list[Cell]
    slim: bool = False


@dataclasses.dataclass(frozen=True)
class Box:
    """A box over the columns from `first` to before `last`, such as a model."""

    text: str
    first: int = 0
    last: int | None = None
    kind: str = "box"


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Boxes side by side."""

    boxes: list[Box]


@dataclasses.dataclass(frozen=True)
class Arrows:
    """Arrows from columns of the band above to those of the one below.

    Without pairs there is one straight down from each column.
    """

    pairs: list[tuple[int, int]] | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of text. One without text keeps a distance."""

    text: str = ""


Band = Row | Box | Boxes | Arrows | Line
Block = list[Band]
Picture = list[Block]
FROM_FIRST = Arrows([(0, 0)])
GAP = Cell(kind="gap")

# Rows of tokens.

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, _, CLS, SEP, MASK = range(len(SPECIAL))
SENTINELS = ["<X>", "<Y>", "<Z>", "<U>", "<V>"]
TEXT = "the dog howls at the big red moon"
WORDS = [*SPECIAL, *SENTINELS]
WORDS += """
the dog howls at big red moon wolf old night cold runs cat sleeps it is a . rain fell
we ran came my barks he loud so hid mary shelley wrote number of novels in london born
was who emma austen jane 1815 1797 where
""".split()
PLAIN = [*range(len(SPECIAL) + len(SENTINELS), len(WORDS))]
# Whose tokens become masks, all of them.
MASKED = {"mask_token_rate": 1.0, "random_token_rate": 0.0}


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def between(text: str) -> list[int]:
    return [CLS, *ids_of(text), SEP]


def words_of(ids) -> list[str]:
    return [WORDS[number] for number in np.array(ids)]


def array(x) -> np.ndarray:
    return ops.convert_to_numpy(x)


def cells_of(words, kind: str = "token") -> list[Cell]:
    """Make cells of words; masks and special tokens look like such."""
    special = {word: "special" for word in SPECIAL} | {"[MASK]": "mask"}
    words = words.split() if isinstance(words, str) else words
    return [Cell(word, special.get(word, kind)) for word in words]


def at(count: int, cells: dict[int, Cell]) -> list[Cell]:
    """Make a row of gaps with some cells."""
    return [cells.get(number, GAP) for number in range(count)]


def mask(ids, seed: int, span_ids=None, **settings) -> dict[str, np.ndarray]:
    """Mask a row by `MaskTokens`."""
    settings = {"random_token_ids": PLAIN, **settings}
    layer = layers.MaskTokens(len(WORDS), MASK, PAD, [CLS, SEP], **settings)
    made = layer(ids, seed=[0, seed], span_ids=span_ids)
    return {name: np.array(x) for name, x in made.items()}


def selected(ids, made) -> tuple[list[Cell], list[Cell]]:
    """Make the cells of a masked row, and of the targets below it."""
    cells, targets = cells_of(words_of(made["token_ids"])), {}
    for place in made["mask_positions"][made["mask_weights"] > 0]:
        targets[place] = Cell(WORDS[ids[place]], "target")
        if made["token_ids"][place] != MASK:
            kind = "kept" if made["token_ids"][place] == ids[place] else "noise"
            cells[place] = Cell(cells[place].text, kind)
    return cells, at(len(ids), targets)


def masked(ids, seed: int, span_ids=None, **settings) -> tuple[list[Cell], list[Cell]]:
    return selected(ids, mask(ids, seed, span_ids, **settings))


def below(targets: list[Cell]) -> Arrows:
    """Draw arrows to all cells of a row that aren't gaps."""
    return Arrows([(n, n) for n, cell in enumerate(targets) if cell.kind != "gap"])


def learns(model: str, text: list[Cell], masks: tuple[list[Cell], list[Cell]]) -> Block:
    """Show a text, what the model reads in its place, and what it has to tell."""
    inputs, targets = masks
    first = [Row("text", text), Row("input", inputs), Arrows(), Box(model)]
    return [*first, below(targets), Row("target", targets)]


def asks(label: str, cells: list[Cell], answer: str) -> Block:
    """Show a row, and what is to be said of it."""
    return [Row(label, cells), FROM_FIRST, Row("target", [Cell(answer, "target")])]


def marks(seen) -> list[Cell]:
    return [Cell(kind="seen" if key else "unseen") for key in seen]


def grid(seen, labels: list[str]) -> Block:
    """Show an attention mask: a row for each query, a column for each key."""
    pairs = zip(labels, array(seen), strict=True)
    return [Row(label, marks(row), slim=True) for label, row in pairs]


def side_by_side(**named) -> Block:
    """Show attention masks beside each other, under their names."""
    boxes, rows = [], [[] for _ in next(iter(named.values()))]
    for name, seen in named.items():
        first = len(rows[0]) + bool(rows[0])
        boxes.append(Box(name.replace("_", " "), first, first + len(seen), "bare"))
        for row, line in zip(rows, array(seen), strict=True):
            row += [GAP] * bool(row) + marks(line)
    return [Boxes(boxes), *(Row("", row, slim=True) for row in rows)]


def look_up(texts):
    """Look up ids of words between spaces, in the graph, as a tokenizer does."""
    keys = tf.lookup.KeyValueTensorInitializer(WORDS, [*range(len(WORDS))])
    table = tf.lookup.StaticHashTable(keys, 1)
    words = tf.strings.split(texts)
    return words.with_flat_values(tf.cast(table[words.flat_values], tf.int32))


def pairs(objective: str, documents: list[str], seed: int):
    """Find the first pair for each label of a sentence objective: ids and segments."""
    build = PairSegments(look_up, 11, CLS, SEP, objective, short_sequence_rate=0.0,
                         seed=seed)  # fmt: skip
    found = {}
    with warnings.catch_warnings(category=UserWarning, action="ignore"):
        rows = tf.data.Dataset.from_tensor_slices(documents).apply(build)
        rows = [*rows.as_numpy_iterator()]  # says that documents are short
    for row in rows:
        size = row["padding_mask"].sum()
        pair = row["token_ids"][:size], row["segment_ids"][:size]
        if row["sentence_weight"]:
            found.setdefault(int(row["sentence_label"]), pair)
    return [found[label] for label in sorted(found)]


def segments(ids, numbers) -> list[Cell]:
    kinds = np.where(numbers, "second", "first")
    return [*map(lambda k, kind: cells_of([WORDS[k]], kind)[0], ids, kinds)]


def denoise(objective, text: str, seed: int) -> tuple[list[str], list[str]]:
    """Give what an encoder reads and a decoder writes, without padding."""
    layer = layers.DenoiseTokens(
        objective,
        sequence_length=16,
        vocabulary_size=len(WORDS),
        mask_token_id=MASK,
        sentinel_ids=ids_of(" ".join(SENTINELS)),
        special_token_ids=[*range(len(SPECIAL))],
        sentence_end_ids=ids_of("."),
    )
    made = layer(ids_of(text), seed=[0, seed])
    inputs = np.array(made["encoder_token_ids"])[np.array(made["encoder_padding_mask"])]
    targets = np.array(made["target_ids"])[np.array(made["target_weights"]) > 0]
    return words_of(inputs), words_of(targets)


def with_sentinels(words: list[str], kind: str) -> list[Cell]:
    cells = cells_of(words, kind)
    return [Cell(c.text, "mask") if c.text in SENTINELS else c for c in cells]


def window(length: int, size: int, dilation: int = 1, **settings) -> np.ndarray:
    """Tell which keys are seen in a window."""
    hidden = neighbours_in_rows(length, size, (dilation,), "float32", **settings)
    return array(hidden)[0, 0] == 0


# The pictures: a function for the page of its name, whose docstring is the caption.

STORIES = ["my dog barks\nhe is so loud", "rain fell\nwe ran", "night came\nit is cold"]


def bert() -> Picture:
    """Some tokens are masked, and a few become another word; all of these are to be
    told from both sides. [CLS] tells whether the second segment follows on the first.
    """
    follows, other = pairs("nsp", STORIES, 0)
    inputs, targets = masked(follows[0], 7, mask_selection_rate=0.3)
    targets[0] = Cell("next", "target")
    return [
        learns("BERT", segments(*follows), (inputs, targets)),
        asks("or", segments(*other), "other"),
    ]


def roberta() -> Picture:
    """Each epoch masks other tokens of the same row. Rows are full of text, and no
    second segment is told from a first.
    """
    names = {"[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}

    def row(label, cells):
        return Row(label, [Cell(names.get(c.text, c.text), c.kind) for c in cells])

    ids = between(TEXT)
    epochs = [
        row(f"epoch {epoch + 1}", masked(ids, 2 + epoch, mask_selection_rate=0.2)[0])
        for epoch in range(4)
    ]
    return [[row("text", cells_of(words_of(ids))), Line(), *epochs]]


def albert() -> Picture:
    """Two segments are in order or swapped, which their topics can't tell. One table
    has narrow vectors and a projection. And one layer is run twelve times.
    """
    ordered, swapped = pairs("sop", STORIES[:1] * 9, 1)
    size = models.AlbertBackbone.presets_table["albert_base_en_uncased"]
    table = [size["vocabulary_size"], size["hidden_dim"]]
    narrow = models.AlbertBackbone.record.arguments["embedding_dim"]

    def millions(number):
        return Cell(f"{number / 1e6:.1f} million", "bare")

    def matrix(rows, columns, kind="mask"):
        return Cell(f"{rows:,} x {columns}", kind)

    factors = [matrix(table[0], narrow), matrix(narrow, table[1])]
    return [
        asks("order", segments(*ordered), "in order"),
        asks("swapped", segments(swapped[0], 1 - swapped[1]), "swapped"),
        [
            Row("BERT", [matrix(*table, "token"), GAP, millions(table[0] * table[1])]),
            Row("ALBERT", [*factors, millions(sum(table) * narrow)]),
        ],
        [
            Row("BERT", cells_of(map(str, range(1, 13)))),
            Row("ALBERT", [Cell("1", "mask")] * 12),
        ],
    ]


def spanbert() -> Picture:
    """A whole span is masked. Each of its tokens is told from its own state, and once
    more from the two states at the span's borders and its place in it.
    """
    ids = between(TEXT)
    made = mask(
        ids,
        3,
        strategy=layers.GeometricSpans(),
        mask_selection_rate=0.3,
        return_span_bounds=True,
        **MASKED,
    )
    masks = selected(ids, made)
    first, last = made["span_bounds"][0]
    borders = {first - 1: Cell("left", "kept"), last + 1: Cell("right", "kept")}
    places = {k: Cell(f"{k - first + 1}", "kept") for k in range(first, last + 1)}
    *above, _, targets = learns("SpanBERT", cells_of(words_of(ids)), masks)
    return [
        [
            *above,
            below(at(len(ids), borders)),
            Row("borders", at(len(ids), borders | places)),
            Arrows([(border, place) for place in places for border in borders]),
            targets,
        ]
    ]


def electra() -> Picture:
    """A small generator fills in what is masked. The discriminator says of every token
    whether it was replaced (1) or not (0); where the generator is right, it was not.
    """
    ids = between(TEXT)
    made = mask(ids, 3, mask_selection_rate=0.4, **MASKED)
    # A generator that is right as often as not.
    logits = np.full((len(made["mask_ids"]), len(WORDS)), -9.0, "float32")
    logits[:, PLAIN[:13]] = 0.0
    logits[np.arange(len(logits)), made["mask_ids"]] = np.log(12.0)
    samples = SampleTokens(seed=1)(ops.convert_to_tensor(logits[None]))
    places, real = made["mask_positions"][None], made["mask_weights"][None] > 0
    new = array(replace_at(np.array([ids]), places, samples, real))[0]
    sampled, _ = selected(ids, {**made, "token_ids": new})
    inputs, targets = selected(ids, made)
    labels = [str(int(a != b)) for a, b in zip(ids, new, strict=True)]
    return [
        [
            Row("text", cells_of(words_of(ids))),
            Row("masked", inputs),
            below(targets),
            Box("generator: a small masked LM"),
            below(targets),
            Row("sampled", sampled),
            Arrows(),
            Box("discriminator: ELECTRA"),
            Arrows(),
            Row("target", cells_of(labels, "target")),
        ]
    ]


def xlnet() -> Picture:
    """Tokens are told one after another in an order that is drawn; those without a
    number come before all. In the content stream a token sees itself and what is before
    it in the order. The query stream, which predicts, doesn't see the token itself.
    """
    ids = ids_of("the dog howls at the moon")
    layer = layers.PermuteTokens(
        len(WORDS), [CLS, SEP], PAD, mask_selection_length=3, alpha=2
    )
    made = {name: x.numpy() for name, x in layer([ids], seed=[0, 8]).items()}
    ranks, positions = made["perm_ranks"], made["mask_positions"]
    seen = array(visible_keys(np.array([ids]), positions, ranks))[0]
    told = sorted(positions[0], key=ranks[0].__getitem__)
    order = {place: Cell(str(n + 1), "target") for n, place in enumerate(told)}
    words = words_of(ids)
    return [
        [
            Row("order", at(len(ids), order)),
            Row("text", cells_of(words)),
            Line("content stream: a row for each token, filled where it looks"),
            *grid(seen[: len(ids)], words),
            Line("query stream: a row for each token to tell"),
            *grid(seen[len(ids) :], [words[place] for place in positions[0]]),
        ]
    ]


def transformer_xl() -> Picture:
    """The states of the piece before are kept, without gradients. Each token sees them
    and what is before it in its own piece, and tells the next one.
    """
    words = TEXT.split()
    memory = np.ones((1, 4), bool)
    seen = visible_keys(np.zeros((1, 4), "int32"), causal=True, memory_mask=memory)
    names = [Box("memory, no gradient", 0, 4, "bare"), Box("this piece", 4, 8, "bare")]
    return [
        [
            Boxes(names),
            Row("keys", cells_of(words[:4], "second") + cells_of(words[4:])),
            *grid(array(seen)[0], words[4:]),
            Arrows([(n, n) for n in range(4, 8)]),
            Row("target", [GAP] * 4 + cells_of([*words[5:], "..."], "target")),
        ]
    ]


def elmo() -> Picture:
    """Two language models share the words' vectors, which are made of characters. One
    reads from the left and tells the next word, one from the right and tells the word
    before. A task mixes the states of all layers.
    """
    words = TEXT.split()[:6]
    tokenizer = tokenizers.ElmoTokenizer(["<S>", "</S>", "<UNK>", *sorted({*words})])
    preprocessor = tasks.BidirectionalLMPreprocessor(tokenizer, len(words) + 2)
    x, y, weight = preprocessor([" ".join(words)])

    def named(ids):
        return [tokenizer.id_to_token(int(number)) for number in np.array(ids)]

    forward, backward = (
        [cell if real else GAP for cell, real in zip(row, reals, strict=True)]
        for row, reals in zip(
            (cells_of(named(ids), "target") for ids in y), np.array(weight), strict=True
        )
    )
    backward = backward[::-1]  # its row is the text backwards
    return [
        [
            Row("text", cells_of(named(x["token_ids"][0]))),
            Arrows(),
            Box("convolutions over characters"),
            below(forward),
            Box("LSTMs from left to right ->"),
            below(forward),
            Row("target", forward),
            Line(),
            below(backward),
            Box("<- LSTMs from right to left"),
            below(backward),
            Row("target", backward),
        ]
    ]


def gpt() -> Picture:
    """Each token sees itself and those before it (filled), and tells the next one.
    Nothing is masked.
    """
    words = TEXT.split()
    seen = causal_mask(len(words), len(words))
    targets = Row("target", cells_of([*words[1:], "..."], "target"))
    lines = grid(array(seen)[0], words)
    return [[Row("keys", cells_of(words)), *lines, Arrows(), targets]]


def t5() -> Picture:
    """The encoder reads a text with parts left out, and the decoder writes these."""
    shown = [[Row("text", cells_of(TEXT))]]
    for name, objective, seed in (
        ("T5: spans give way to sentinels", layers.RandomSpans(0.35, 2.0), 1),
        ("UL2, sequential: what follows a prefix", layers.PrefixLM(0.5), 0),
        ("MASS: one fragment, each of its tokens masked", layers.MassFragment(), 3),
    ):
        inputs, targets = denoise(objective, TEXT, seed)
        reads = Row("reads", with_sentinels(inputs, "token"))
        writes = Row("writes", with_sentinels(targets, "target"))
        shown.append([Line(name), reads, FROM_FIRST, writes])
    return shown


def bart() -> Picture:
    """The encoder reads a text that was spoilt in one way or another, and the decoder
    writes the whole text. One mask can stand for several tokens, or for none.
    """
    text = "rain fell . we ran . night came ."
    shown = []
    for name, noise, kind in (
        ("masked", layers.TokenMasking(0.3), "token"),
        ("deleted", layers.TokenDeletion(0.3), "token"),
        ("infilled", layers.TextInfilling(0.3, 2.0), "token"),
        ("sentences", layers.SentencePermutation(), "noise"),
        ("rotated", layers.DocumentRotation(), "noise"),
    ):
        inputs, targets = denoise(noise, text, 0)
        shown.append([Row(name, cells_of(inputs, kind))])
    writes = Row("writes", cells_of(targets, "target"))
    return [*shown, [Arrows(), Box("BART: encoder and decoder"), Arrows(), writes]]


def ernie() -> Picture:
    """Three stages come one after the other: single words are masked, then whole
    phrases (a number of), then whole names (mary shelley, london).
    """
    text = "mary shelley wrote a number of novels in london"
    stages = {
        "basic": ([0] * 9, 1),
        "phrase": ([0, 0, 0, 1, 1, 1, 0, 0, 0], 7),
        "entity": ([1, 1, 0, 0, 0, 0, 0, 0, 2], 3),
    }
    given = sum(np.array(spans) for spans, _ in stages.values()) > 0
    rows = [Row("text", [*map(Cell, text.split(), np.where(given, "kept", "token"))])]
    for stage, (spans, seed) in stages.items():
        settings = {"strategy": layers.KnowledgeMasking(stage), **MASKED}
        settings["mask_selection_rate"] = 0.45
        rows.append(Row(stage, masked(ids_of(text), seed, spans, **settings)[0]))
    return [rows]


def distilbert() -> Picture:
    """The student begins with six of its teacher's twelve layers. Both read the same
    masked text, and the student learns from three things.
    """
    taken = teacher_layers(12)
    student = {place: Cell(str(n + 1), "mask") for n, place in enumerate(taken)}
    teacher = [Cell(str(n + 1), "mask" if n in taken else "token") for n in range(12)]
    weights = models.DistilBertBackbone.record.pretraining[""].task_arguments
    losses = (
        f"{weights['ce_weight']:g} x what the teacher says of every token",
        f"{weights['mlm_weight']:g} x what was masked",
        f"{weights['cosine_weight']:g} x the direction of its last states",
    )
    return [
        [
            Row("teacher", teacher),
            Arrows([(place, place) for place in taken]),
            Row("student", at(12, student)),
            Line(),
        ],
        *([Row("+" if n else "loss", [Cell(loss, "target")])]
          for n, loss in enumerate(losses)),
    ]  # fmt: skip


def longformer() -> Picture:
    """Which tokens (columns) each token (row) sees: its neighbours; every second of
    them; and beside them a first token that sees all and is seen by all. Cost grows
    with the length of a text, and not with its square.
    """
    count = 10
    first = tokens_at(np.array([[0]]), count)
    # The rows of global tokens are computed apart, by projections of their own.
    together = window(count, 4, global_tokens=first) | array(first["here"])[0][:, None]
    return [
        side_by_side(
            window=window(count, 4), gaps=window(count, 4, 2), global_token=together
        )
    ]


def modernbert() -> Picture:
    """Every third layer sees all tokens, the others 128 (here four). Texts share a row
    in place of padding, and don't see each other.
    """
    windows = models.ModernBertBackbone.record.arguments["attention_window"]
    number = models.ModernBertBackbone.presets_table["modernbert_base_en"]["num_layers"]
    kinds = [not windows[layer % len(windows)] for layer in range(number)]
    two_texts = array(same_sequence(np.array([[1] * 4 + [2] * 6]), None))[0]
    return [
        [
            Line(f"{number} layers, of which those that are filled see the whole text"),
            Row("layers", marks(kinds), slim=True),
        ],
        side_by_side(
            all=np.ones_like(two_texts), window=window(10, 4), two_texts=two_texts
        ),
    ]


def deberta() -> Picture:
    """A score is a sum of three terms, two of them by how far the tokens are apart: the
    numbers are the rows of the table of distances, which has ends. Absolute places come
    in only where masked tokens are told.
    """
    words, half = TEXT.split()[:6], 4
    places = np.arange(len(words))
    distances = np.clip(places[:, None] - places, -half, half - 1)
    numbers = rows_by_distance(2 * half, half)[distances + half]
    ids = ids_of(" ".join(words))
    inputs, targets = masked(ids, 1, mask_selection_rate=0.3, **MASKED)
    return [
        [Row("score", [Cell("content(i) . content(j)", "mask")])],
        [Row("+", [Cell("content(i) . distance(i - j)", "second")])],
        [Row("+", [Cell("distance(j - i) . content(j)", "second")])],
        [
            Row("i, j", cells_of(words)),
            *(
                Row(word, cells_of(map(str, line), "bare"), slim=True)
                for word, line in zip(words, numbers, strict=True)
            ),
        ],
        [
            Row("input", inputs),
            Box("DeBERTa: no places in its input"),
            Line(),
            Row("place", cells_of(map(str, places), "second")),
            Box("mask decoder"),
            below(targets),
            Row("target", targets),
        ],
    ]


def mpnet() -> Picture:
    """Masked tokens are told one after the other, in an order that is drawn. Each sees
    those that were told before, and for the others a mask at their place. So it depends
    on what was told, and knows how long the text is.
    """
    ids = ids_of("the dog howls at the moon")
    made = mask(ids, 6, mask_selection_rate=0.4, shuffle_slots=True, **MASKED)
    places, filled = made["mask_positions"][None], made["mask_weights"][None] > 0
    seen = array(two_stream_mask(places, filled, len(ids)))[0]
    count = len(ids) + len(places[0])  # what follows are the queries
    words = words_of(ids)
    keys = cells_of(words)
    for place in places[0]:
        keys[place] = Cell(words[place], "kept")
        keys.append(Cell(f"[M] {place + 1}", "mask"))
    return [
        [
            Row("place", cells_of(map(str, range(1, 1 + len(ids))), "bare")),
            Row("keys", keys),
            Line("a row for each token to tell, filled where it looks"),
            *grid(seen[count:, :count], [words[place] for place in places[0]]),
        ]
    ]


def macbert() -> Picture:
    """In place of masks stand similar words (for dog: wolf, cat), or random ones where
    there are none. The model corrects them.
    """
    similar = {"dog": "wolf cat", "howls": "barks", "moon": "night"}
    ids = between(TEXT)
    made = masked(
        ids,
        6,
        strategy=layers.NGrams(4, weights=[4, 3, 2, 1]),
        mask_selection_rate=0.4,
        replacement_unit="word",
        similar_tokens=[
            (ids_of(word), [[number] for number in ids_of(others)])
            for word, others in similar.items()
        ],
    )
    return [learns("MacBERT", cells_of(words_of(ids)), made)]


def structbert() -> Picture:
    """Three neighbouring words in another order are to be put right, beside a masked
    one. Of two segments is told whether the second is the next, the one before, or from
    another text.
    """
    ids = between(TEXT)
    made = masked(ids, 5, mask_selection_rate=0.1, shuffle_rate=0.3, **MASKED)
    shown = [learns("StructBERT", cells_of(words_of(ids)), made)]
    for name, pair in zip(
        ("next", "before", "other"), pairs("structural", STORIES * 4, 2), strict=True
    ):
        shown.append(asks("segments", segments(*pair), name))
    return shown


def masked_diffusion() -> Picture:
    """Each row is masked at a rate p of its own, from hardly any token to all, and a
    masked token weighs 1/p. To write a text is to go from the first row to the last, a
    few tokens at a time.
    """
    made = DiffuseTokens(MASK)([ids_of(TEXT)] * 5, seed=[0, 3])
    weights = np.array(made["weights"]).max(1)
    rows = [
        Row(f"p = {1 / weights[k]:.2f}", cells_of(words_of(made["token_ids"][k])))
        for k in np.argsort(weights)
    ]
    return [[*rows, Line(), Row("text", cells_of(TEXT))]]


def autoencoders() -> Picture:
    """TSDAE writes a text from one vector of what was left of it. RetroMAE tells each
    token from the vector and from other tokens; half of them are hidden, others for
    each token (filled is what it sees).
    """
    ids = between("the dog howls at the moon")
    words = words_of(ids)
    whole = {"unselectable_token_ids": [CLS, SEP]}
    left = {name: np.array(x) for name, x in DeleteWords(**whole)(ids, [0, 4]).items()}
    kept = words_of(left["token_ids"][left["padding_mask"]])
    seen = np.array(SampleContexts(**whole)(ids, seed=[0, 0]))
    vector = Cell("vector", "kept")
    return [
        [
            Line("TSDAE"),
            Row("input", cells_of(kept)),
            FROM_FIRST,
            Row("", [vector]),
            FROM_FIRST,
            Row("target", cells_of(words[1:-1], "target")),
        ],
        [
            Line("RetroMAE"),
            Row("input", masked(ids, 2, mask_selection_rate=0.3, **MASKED)[0]),
            FROM_FIRST,
            Row("decoder", [vector, *cells_of(words[1:])]),
            *grid(seen[1:-1], words[1:-1]),
        ],
    ]


def realm() -> Picture:
    """One name or date is masked. With what search finds, its probability is the sum of
    the products over the passages. A passage with which it is likelier than that
    becomes likelier itself. (The numbers are made up.)
    """
    ids = ids_of("mary shelley was born in 1797")
    settings = {"strategy": "salient_spans", "mask_selection_length": 2, **MASKED}
    inputs, targets = masked(ids, 0, [1, 1, 0, 0, 0, 2], **settings)
    passages = ["mary shelley, born in 1797", "jane austen wrote emma", "(none)"]
    prior, likely = np.array([[0.5, 0.3, 0.2]]), np.array([[[0.9], [0.1], [0.2]]])
    total = float(np.exp(array(sequence_marginal(np.log(prior), np.log(likely)))[0]))
    rows = [Row("", cells_of(["passage z", "p(z|x)", "p(y|z,x)", "score"], "bare"))]
    for passage, p, (own,) in zip(passages, prior[0], likely[0], strict=True):
        moves = Cell("rises", "kept") if own > total else Cell("falls", "noise")
        numbers = cells_of([f"{p:.1f}", f"{own:.1f}"], "bare")
        rows.append(Row("", [Cell(passage, "second"), *numbers, moves]))
    sums = [Cell("p(y|x)", "bare"), GAP, Cell(f"{total:.2f}", "kept")]
    return [
        [
            Row("text", cells_of(words_of(ids))),
            Row("x", inputs),
            FROM_FIRST,
            Box("search by vectors", 0, 2),
        ],
        [*rows, Row("sum", sums)],
        [Box("encoder of x and z", 0, 2), below(targets), Row("y", targets)],
    ]


def rag() -> Picture:
    """A question finds passages, and the generator writes the answer with each.
    RAG-Sequence sums over passages the product of the tokens' probabilities, RAG-Token
    sums for each token. (The numbers are made up.)
    """
    passages = ["jane austen wrote emma", "emma, a novel of 1815"]
    prior, likely = np.array([[0.6, 0.4]]), np.array([[[0.5, 0.2], [0.1, 0.9]]])
    logs = np.log(prior), np.log(likely)
    whole = float(np.exp(array(sequence_marginal(*logs))[0]))
    each = [f"{p:.2f}" for p in np.exp(array(token_marginal(*logs))[0])]
    rows, products = [], []
    for passage, p, own in zip(passages, prior[0], likely[0], strict=True):
        numbers = [f"{number:.1f}" for number in (p, *own)]
        rows.append(Row("", [Cell(passage, "second"), *cells_of(numbers, "bare")]))
        products.append(" x ".join(numbers))
    names = cells_of(["passage z", "p(z)"], "bare")
    return [
        [
            Row("question", cells_of("when was emma written")),
            FROM_FIRST,
            Box("search by vectors"),
        ],
        [
            Row("", [*names, *cells_of("in 1815", "target")]),
            *rows,
            Line(),
            Row("Token", [GAP, GAP, *cells_of(each, "kept")]),
        ],
        [Row("Sequence", [Cell(f"{' + '.join(products)} = {whole:.3f}", "kept")])],
    ]


def xlm_roberta() -> Picture:
    """One vocabulary and one model: each row is of one language, and masked as
    RoBERTa's. Languages with little text are drawn more often than they have text, by a
    power of .3 of their shares. (The sizes are made up.)
    """
    texts = {
        "English": "the dog barks at night",
        "French": "le chien aboie la nuit",
        "German": "der Hund bellt nachts laut",
    }
    sizes = {"English": 1000.0, "French": 100.0, "German": 10.0}
    shares = [sampling_shares(sizes, exponent) for exponent in (1.0, 0.3)]
    rows = several_languages(texts, [0.3] * len(texts))
    table = [Row("", cells_of(["of the text", "of the rows"], "bare"))]
    for name in texts:
        known, drawn = (f"{100 * share[name]:.0f} %" for share in shares)
        table.append(Row(name, [Cell(known, "bare"), Cell(drawn, "kept")]))
    return [rows, table]


def scibert() -> Picture:
    """A vocabulary that was learned from papers has their words as a whole; one of
    other text cuts them into pieces. The objective is BERT's. (Both are made up.)
    """
    shown = []
    for name, pieces in {
        "general": "the kin ##ase ph ##os ##ph ##ory ##lates rec ##eptor ##s",
        "papers": "the kinase phosphorylates receptor ##s",
    }.items():
        tokenizer = tokenizers.BertTokenizer([*SPECIAL, *pieces.split()])
        ids = np.array(tokenizer("the kinase phosphorylates receptors"))
        found = [tokenizer.id_to_token(int(number)) for number in ids]
        kinds = ["noise" if piece[:2] == "##" else "token" for piece in found]
        shown.append([Row(name, [*map(Cell, found, kinds)])])
    return shown


def ettin() -> Picture:
    """The same text in the same order, for two models of one architecture: the encoder
    sees both sides and tells masked tokens, the decoder sees what is before and tells
    the next one.
    """
    ids = ids_of(TEXT)
    words = words_of(ids)
    inputs, targets = masked(ids, 1, mask_selection_rate=0.3, **MASKED)
    causal = array(causal_mask(len(ids), len(ids)))[0]
    return [
        [
            Row("encoder", inputs),
            below(targets),
            Row("target", targets),
            Line(),
            Row("decoder", cells_of(words)),
            Arrows(),
            Row("target", cells_of([*words[1:], "..."], "target")),
        ],
        side_by_side(encoder_sees=np.ones_like(causal), decoder_sees=causal),
    ]


def neobert() -> Picture:
    """It masks 20 % of the tokens, and all of these become [MASK]; there is no second
    segment. As wide as BERT, it is more than twice as deep.
    """
    ids = between(TEXT)
    made = masked(ids, 2, **tasks.pretraining_recipe("neobert").masking)
    (ours,) = models.NeoBertBackbone.presets_table.values()
    theirs = models.BertBackbone.presets_table["bert_base_en_uncased"]
    return [
        learns("NeoBERT", cells_of(words_of(ids)), made),
        [
            Line("layers"),
            Row("BERT", marks([0] * theirs["num_layers"]), slim=True),
            Row("NeoBERT", marks([1] * ours["num_layers"]), slim=True),
        ],
    ]


def several_languages(texts: dict[str, str], rates: list[float]) -> list[Row]:
    """Mask texts, each at a rate of its own."""
    rows = []
    for seed, ((name, text), rate) in enumerate(zip(texts.items(), rates, strict=True)):
        words = ["<mask>", *text.split()]
        layer = layers.MaskTokens(
            len(words), 0, len(words), mask_selection_rate=rate, **MASKED
        )
        ids = np.array(layer([*range(1, len(words))], seed=[0, seed])["token_ids"])
        rows.append(Row(name, [Cell(words[k], "token" if k else "mask") for k in ids]))
    return rows


def xlm() -> Picture:
    """A text and its translation stand in one row, and both are masked: each side helps
    to tell what the other lacks. Positions begin anew with the translation, and each
    token has a vector of its language.
    """
    sides = {"en": "the dog barks", "fr": "le chien aboie"}
    rows = several_languages(sides, [0.3, 0.3])
    end = Cell("</s>", "special")
    inputs = [cell for row in rows for cell in (end, *row.cells, end)]
    words = [word for text in sides.values() for word in ("", *text.split(), "")]
    names = [name for row in rows for name in [row.label] * (len(row.cells) + 2)]
    places = [n for row in rows for n in range(len(row.cells) + 2)]
    targets = [
        Cell(word, "target") if cell.kind == "mask" else GAP
        for word, cell in zip(words, inputs, strict=True)
    ]
    return [
        [
            Row("input", inputs),
            Row("position", cells_of(map(str, places), "bare")),
            Row("language", cells_of(names, "bare")),
            Arrows(),
            Box("XLM"),
            below(targets),
            Row("target", targets),
        ]
    ]


def eurobert() -> Picture:
    """In its larger sizes three heads of queries share the keys and values of one. Half
    of the tokens are masked at first, and a tenth at the end.
    """
    size = models.EuroBertBackbone.presets_table["eurobert_610m_multi"]
    heads, groups = size["num_heads"], size["num_key_value_heads"]
    shared = heads // groups
    keys = at(heads, {shared * n + 1: Cell(kind="seen") for n in range(groups)})
    arrows = [(n, n // shared * shared + 1) for n in range(heads)]
    rates = [
        phase.preprocessor_arguments["mask_selection_rate"]
        for phase in tasks.pretraining_phases("eurobert", total_steps=100)
    ]
    text = "the dog howls at the red moon and it is"
    phases = {f"phase {n + 1}": text for n in range(len(rates))}
    return [
        [
            Row("queries", marks([1] * heads), slim=True),
            Arrows(arrows),
            Row("keys", keys, slim=True),
        ],
        [*several_languages(phases, rates)],
    ]


def mmbert() -> Picture:
    """Three phases have fewer and fewer masks, and languages with little text are drawn
    more and more often, by lower powers of their shares. (The sizes are made up; most
    languages come in the last phase only.)
    """
    phases = tasks.pretraining_phases("mmbert", total_steps=100)
    rates = [phase.preprocessor_arguments["mask_selection_rate"] for phase in phases]
    sizes = {"English": 1000.0, "French": 100.0, "Faroese": 10.0}
    text = "the dog howls at the red moon and it is"
    names = [f"phase {n + 1}" for n in range(len(phases))]
    table = [Row("", cells_of(sizes, "bare"))]
    for name, phase in zip(names, phases, strict=True):
        shares = sampling_shares(sizes, phase.mix_exponent)
        table.append(
            Row(name, [Cell(f"{100 * x:.0f} %", "kept") for x in shares.values()])
        )
    return [several_languages(dict.fromkeys(names, text), rates), table]


PICTURES = {
    function.__name__: function
    for function in (
        albert, autoencoders, bart, bert, deberta, distilbert, electra, elmo, ernie,
        ettin, eurobert, gpt, longformer, macbert, masked_diffusion, mmbert, modernbert,
        mpnet, neobert, rag, realm, roberta, scibert, spanbert, structbert, t5,
        transformer_xl, xlm, xlm_roberta, xlnet,
    )
}  # fmt: skip

# How they are drawn.

LETTER, SPACE = 7.25, 8  # of letters in cells, and around words
HEIGHT, SLIM, ARROW, APART = 22, 13, 16, 4
LABEL = 58  # the column of labels
FONTS = {
    "cells": 'font-family="monospace" font-size="12" text-anchor="middle"',
    "labels": 'font-family="sans-serif" font-size="10" text-anchor="end"',
    "lines": 'font-family="sans-serif" font-size="10"',
}


def widths_of(block: Block) -> list[float]:
    """Compute how wide the columns of a block are."""
    widths: list[float] = []
    for band in block:
        for number, cell in enumerate(band.cells if isinstance(band, Row) else []):
            widths += [SLIM] * (number + 1 - len(widths))
            if cell.text:
                widths[number] = max(widths[number], LETTER * len(cell.text) + SPACE)
    return widths


class Drawing:
    """The shapes and the words of a picture, by their kinds, which style sheets know.

    Shapes of one kind are one path, which keeps pictures small.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, str] = {}
        self.words: dict[str, str] = {}
        self.top, self.right = 0.0, 0.0

    def shape(self, kind: str, path: str) -> None:
        self.shapes[kind] = self.shapes.get(kind, "") + path

    def write(self, kind: str, text: str, x: float, y: float) -> None:
        if not text:
            return
        text = f'<text x="{x:.4g}" y="{y:.4g}">{html.escape(text)}</text>'
        self.words[kind] = self.words.get(kind, "") + text

    def cell(self, cell: Cell, left: float, width: float, height: float) -> None:
        """Draw a cell whose top is where the drawing has come to."""
        self.right = max(self.right, left + width)
        if cell.kind not in ("gap", "bare"):
            wide, high = f"{width - 2:.4g}", f"{height - 2:.4g}"
            path = f"M{left + 1:.4g} {self.top + 1:.4g}h{wide}v{high}h-{wide}z"
            self.shape(cell.kind, path)
        if cell.text:
            middle = left + width / 2
            self.write("cells", cell.text, middle, self.top + height / 2 + 4)

    def band(self, band: Band, lefts: list[float]) -> float:
        """Draw a band over columns that begin at `lefts`, and return its height."""
        match band:
            case Line(text):
                self.right = max(self.right, 5.3 * len(text))
                self.write("lines", text, 0, self.top + 13)
                return 19 if text else 8
            case Arrows(pairs):
                middles = [(a + b) / 2 for a, b in zip(lefts, lefts[1:], strict=False)]
                pairs = (
                    [(n, n) for n in range(len(middles))] if pairs is None else pairs
                )
                high = ARROW if all(begin == end for begin, end in pairs) else 2 * ARROW
                for begin, end in pairs:
                    line = f"L{middles[end]:.4g} {self.top + high - 2:.4g}m-3-4l3 4l3-4"
                    begins = f"M{middles[begin]:.4g} {self.top + 1:.4g}"
                    self.shape("arrow", begins + line)
                return high
            case Box():
                return self.band(Boxes([band]), lefts)
            case Boxes(boxes):
                for box in boxes:
                    left = lefts[box.first]
                    width = lefts[-1 if box.last is None else box.last] - left
                    width = max(width, LETTER * len(box.text) + SPACE)
                    self.cell(Cell(box.text, box.kind), left, width, HEIGHT)
                return HEIGHT
            case Row(label, cells, slim):
                high = SLIM if slim else HEIGHT
                self.write("labels", label, LABEL - 5, self.top + high / 2 + 3.5)
                for cell, left, end in zip(cells, lefts, lefts[1:], strict=False):
                    self.cell(cell, left, end - left, high)
                return high if slim else high + APART


def draw(picture: Picture) -> str:
    """Draw a picture as SVG, in the colours of the page it stands in."""
    drawing, before = Drawing(), []
    for block in picture:
        # Single rows belong together.
        drawing.top += 2 if len(before) < 2 and len(block) < 2 else 12
        lefts = [float(LABEL), *(LABEL + np.cumsum(widths_of(block))).tolist()]
        for band in block:
            drawing.top += drawing.band(band, lefts)
        before = block
    width, height = round(drawing.right + 2), round(drawing.top + APART)
    limits = f"max-width:{width * 6 // 5}px;min-width:{width * 18 // 25}px"
    shapes = (f'<path class="{k}" d="{path}"/>' for k, path in drawing.shapes.items())
    words = (f"<g {FONTS[k]}>{texts}</g>" for k, texts in drawing.words.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'style="{limits}" role="img"><title>{html.escape(described(picture))}</title>'
        f'<g fill="none" stroke="currentColor">{"".join(shapes)}</g>'
        f'<g fill="currentColor">{"".join(words)}</g></svg>'
    )


def drawn(name: str) -> str:
    """Draw the picture of a page."""
    return draw(PICTURES[name]())


def described(picture: Picture) -> str:
    """Say in words what a picture shows: its alternative text."""
    said = (said_of(band) for block in picture for band in block)
    return "; ".join(text for text in said if text) + "."


def said_of(band: Band) -> str:
    match band:
        case Line(text) | Box(text):
            return text
        case Boxes(boxes):
            return ", ".join(box.text for box in boxes)
        case Row(label, cells):
            words = " ".join(cell.text or "-" for cell in cells)
            if not any(cell.text for cell in cells):
                filled = [n for n, cell in enumerate(cells, 1) if cell.kind == "seen"]
                which = " ".join(map(str, filled)) or "none"
                every = len(filled) == len(cells)
                words = f"filled {'all' if every else which} of {len(cells)}"
                # Without labels there are too many to say; their names and the caption
                # tell what they are.
                return f"{label}: {words}" if label else ""
            return f"{label}: {words}" if label else words
    return ""


def caption(name: str) -> str:
    """Say what the picture of a page is about, as HTML."""
    return html.escape(" ".join(inspect.getdoc(PICTURES[name]).split()))


if __name__ == "__main__":
    print(drawn(sys.argv[1]))
