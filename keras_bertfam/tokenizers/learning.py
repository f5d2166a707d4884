"""WordPiece vocabularies and byte pairs, learned from counted words.

The WordPiece vocabulary is the one that
`keras_hub.tokenizers.compute_word_piece_vocabulary` learns by `tensorflow_text`, in a
fiftieth of the time. That code counts all parts of all words. Then it subtracts from
each part the counts of longer parts that begin with it. The rest is the number of words
that end with the part. Here only such ends are counted.

That code leaves out words with others than the 1,000 most frequent characters, so most
of a Chinese text. Here there are as many as nearly the whole text is made of.
"""

import bisect
import collections
import heapq
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.types import TFDataset, TFRagged, TFTensor

# Signs, as in the pre-tokenisation of KerasHub and BERT: each is a word, and ends the
# word before it.
SIGNS = (
    r"[!-/:-@\[-`{-~\p{P}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}"
    r"\x{20000}-\x{2A6DF}\x{2A700}-\x{2CEAF}\x{2F800}-\x{2FA1F}]"
)
SPACES = r"[\s\p{Cc}\p{Cf}]"
# The most characters of a word, the most different characters, and the most words.
_MAX_LENGTH, _MAX_CHARACTERS, _MAX_WORDS = 50, 1000, 5_000_000
# There are more characters where this share of the text isn't covered, as in Chinese.
_COVERAGE = 0.9999
# The upper bound of the binary search for how often a token must occur.
_MAX_FREQUENCY = 10_000_000
_UNUSED_SHARE = 0.05  # this share of the vocabulary may stay unused
_ROUNDS = 4
_CONTINUES = "##"


@as_written
def count_words(
    texts: TFDataset, split: Callable[[TFTensor], TFRagged]
) -> dict[str, int]:
    """Count words.

    Args:
        texts: `tf.data.Dataset` of strings of shape `(batch,)`, cleaned.
        split: function that splits texts into words, such as `split_words`.

    Returns:
        A dict of words and their counts, in the order of their first occurrence.
    """
    counts: collections.Counter[bytes] = collections.Counter()
    words = texts.map(
        lambda batch: split(batch).flat_values,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    for batch in words.as_numpy_iterator():
        counts.update(batch.tolist())
    return {word.decode(): count for word, count in counts.items()}


def split_words(texts: TFTensor) -> TFRagged:
    """Split cleaned texts of shape `(batch,)` into words, ragged `(batch, None)`."""
    return ragged.split_at(texts, rf"{SPACES}|{SIGNS}", SIGNS)[0]


def learn_word_pieces(
    counts: dict[str, int],
    size: int,
    special_tokens: Sequence[str],
    min_frequency: int,
) -> list[str]:
    """Learn a WordPiece vocabulary that contains the characters of the words.

    Args:
        counts: what `count_words` returns.
        size: int. The most tokens, special ones included. The result has fewer if the
            text has fewer tokens that occur often enough.
        special_tokens: the first tokens of the vocabulary.
        min_frequency: int. How often a token must occur.

    Returns:
        List of str: the special tokens, single characters, and the other tokens by
        frequency. Tokens that continue a word begin with `##`.

    Raises:
        ValueError: If all words are too long, or there are none.
    """
    counts = {word: n for word, n in counts.items() if len(word) <= _MAX_LENGTH}
    if not counts:
        raise ValueError(
            f"`documents` must have at least one word of at most {_MAX_LENGTH} "
            "characters. Received: none."
        )
    forms = _characters_to_learn(counts, size - len(special_tokens))
    words, characters = _words_to_learn(counts, forms), sorted(forms)
    most = min(max(counts.values()), _MAX_FREQUENCY)
    least = max(min(counts.values()), min_frequency)
    inner = sorted(token for tokens in forms.values() for token in tokens[1:])
    single = dict.fromkeys([*characters, *inner], 1)
    all_ends = _count_all_ends(words)
    frequencies = sorted(all_ends.values())
    while True:
        frequency = max((most + least) // 2, min_frequency)
        is_last = least >= most
        # Later rounds never leave more tokens than the first, so the bound holds.
        bound = len(frequencies) - bisect.bisect_left(frequencies, frequency)
        bound += len(special_tokens) + len(single)
        if not is_last and _has_room(bound, size):
            most = frequency - 1
            continue
        tokens = single | _frequent(all_ends, frequency)
        for _ in range(_ROUNDS - 1):
            tokens = single | _frequent(_count_ends(words, tokens), frequency)
        ranked = sorted(tokens, key=lambda token: (-tokens[token], token))
        vocabulary = [*dict.fromkeys([*special_tokens, *characters, *ranked])]
        if len(vocabulary) > size:
            least = frequency + 1
        elif _has_room(len(vocabulary), size):
            most = frequency - 1
        else:
            is_last = True
        if is_last:
            return _cut(vocabulary, size, {*special_tokens, *single})


def _cut(vocabulary, size, needed):
    """Leave out the last tokens above a size, except those that are needed."""
    others = [token for token in vocabulary if token not in needed]
    room = size - (len(vocabulary) - len(others))
    kept = needed.union(others[:room])
    return [token for token in vocabulary if token in kept]


def _has_room(number, size):
    """Tell whether more of the vocabulary is unused than may be."""
    return size - number > _UNUSED_SHARE * size


def _characters_to_learn(counts, room):
    """Choose characters, and list the tokens that each of them is.

    They are the 1,000 most frequent ones, or as many more as nearly the whole text is
    made of. Where there are more, or these would take more than half of the room, those
    that only begin words, such as signs, have one token, and there are fewer rare ones.

    Args:
        counts: words and how often they occur.
        room: int. How many tokens there may be.

    Returns:
        Dict from characters to lists of tokens, such as `["a", "##a"]`.
    """
    frequencies: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            frequencies[character] += count
    ranked = sorted(frequencies, key=lambda c: (-frequencies[c], c))
    total, so_far, needed = sum(frequencies.values()), 0, 0
    while so_far < _COVERAGE * total:
        so_far += frequencies[ranked[needed]]
        needed += 1
    ranked = ranked[: max(needed, _MAX_CHARACTERS)]
    if len(ranked) <= _MAX_CHARACTERS and 4 * len(ranked) <= room:
        return {c: [c, _CONTINUES + c] for c in ranked}
    inside = {character for word in counts for character in word[1:]}
    tokens: dict[str, list[str]] = {}
    taken = 0
    for character in ranked:
        forms = [character, _CONTINUES + character]
        forms = forms if character in inside else forms[:1]
        taken += len(forms)
        if taken > (room if len(tokens) < needed else room // 2):
            break
        tokens[character] = forms
    if len(tokens) < needed:
        warnings.warn(
            f"`vocabulary_size` has room for {len(tokens)} of the {needed} characters "
            "that nearly the whole text is made of: words with others are unknown.",
            stacklevel=5,
        )
    return tokens


def _words_to_learn(counts, characters):
    """List the words to learn from, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    known = {*characters}
    return dict([item for item in ordered if known.issuperset(item[0])][:_MAX_WORDS])


def _count_all_ends(words):
    """Count how often each end of a word occurs, from whole words to last letters."""
    ends: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        ends[word] += count
        for start in range(1, len(word)):
            ends[_CONTINUES + word[start:]] += count
    return ends


def _count_ends(words, tokens):
    """Count the ends of words that begin at a token, if words are split into tokens."""
    ends: collections.Counter[str] = collections.Counter()
    longest = max(map(len, tokens), default=0)
    for word, count in words.items():
        rest = word
        ends[rest] += count
        while rest not in tokens:
            # Find the longest token at the beginning; each character is a token.
            end = min(longest, len(rest) - 1)
            while rest[:end] not in tokens:
                end -= 1
            rest = _CONTINUES + rest[end:]
            ends[rest] += count
    return ends


def _frequent(ends, frequency):
    return {end: count for end, count in ends.items() if count >= frequency}


def without_rare_characters(
    counts: Mapping[str, int], limit: int, alphabet: Sequence[str] = ()
) -> dict[str, int]:
    """Cut words at characters that aren't among the most frequent ones.

    Of `{"ab": 3, "acb": 1}`, with a limit of 2: `{"ab": 3, "a": 1, "b": 1}`.

    Args:
        counts: words and how often they occur.
        limit: int. How many different characters to keep.
        alphabet: characters that are kept whether or not they are frequent.
    """
    frequencies: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            frequencies[character] += count
    others = sorted({*frequencies} - {*alphabet}, key=lambda c: (-frequencies[c], c))
    kept = {*alphabet, *others[: max(0, limit - len(alphabet))]}
    parts: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for is_kept, run in itertools.groupby(word, kept.__contains__):
            if is_kept:
                parts["".join(run)] += count
    return dict(parts)


Pair = tuple[int, int]


def learn_byte_pairs(
    counts: Mapping[str, int],
    size: int,
    special_tokens: Sequence[str],
    alphabet: Iterable[str] = (),
    word_end: str = "",
    min_frequency: int = 2,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Learn which pairs of symbols to merge, the most frequent first.

    Args:
        counts: dict from words, in the characters of the vocabulary, to their counts.
        size: int. The most tokens.
        special_tokens: the first tokens.
        alphabet: characters that become tokens even if they don't occur.
        word_end: string that is put at the end of a word's last character.
        min_frequency: int. How often a pair must occur. Defaults to `2`.

    Returns:
        A tuple: the list of tokens, and the list of merged pairs.
    """
    characters = {*alphabet, *(c for word in counts for c in word)}
    ends = {word[-1] + word_end for word in counts if word and word_end}
    tokens = [*special_tokens, *sorted(characters), *sorted(ends)]
    numbers = {token: number for number, token in enumerate(tokens)}
    words = [_symbols(word, word_end, numbers) for word in counts]
    pairs = _Pairs(words, [*counts.values()])
    merges = []
    while len(tokens) < size:
        pair, count = pairs.most_frequent()
        if pair is None or count < min_frequency:
            break
        left, right = (tokens[number] for number in pair)
        merges.append((left, right))
        new = numbers.setdefault(left + right, len(tokens))
        if new == len(tokens):
            tokens.append(left + right)
        pairs.merge(pair, new)
    return tokens, merges


def _symbols(word, word_end, numbers):
    parts = [*word[:-1], *(c + word_end for c in word[-1:])]
    return [numbers[part] for part in parts]


class _Pairs:
    """Counts of neighbouring pairs of symbols, which follow the merges.

    Args:
        words: list of lists of numbers of symbols. Merges change them.
        counts: how often each word occurs.
    """

    def __init__(self, words: list[list[int]], counts: list[int]) -> None:
        self._words = words
        self._counts = counts
        self._frequencies: collections.Counter[Pair] = collections.Counter()
        self._places: dict[Pair, set[int]] = collections.defaultdict(set)
        for place, (word, count) in enumerate(zip(words, counts, strict=True)):
            for pair in zip(word, word[1:], strict=False):
                self._frequencies[pair] += count
                self._places[pair].add(place)
        self._heap = [(-count, pair) for pair, count in self._frequencies.items()]
        heapq.heapify(self._heap)

    def most_frequent(self) -> tuple[Pair | None, int]:
        """Give the most frequent pair and its count; of equal pairs the first."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._frequencies[pair]
            if count == -negative:
                return pair, count
            if count > 0:  # the pair has become rarer
                heapq.heappush(self._heap, (-count, pair))
        return None, 0

    def merge(self, pair: Pair, new: int) -> None:
        """Replace a pair by one symbol in all words."""
        changed: set[Pair] = set()
        for place in self._places.pop(pair):
            self._merge_in(place, pair, new, changed)
        del self._frequencies[pair]
        for other in changed:
            heapq.heappush(self._heap, (-self._frequencies[other], other))

    def _merge_in(self, place, pair, new, changed):
        word, count = self._words[place], self._counts[place]
        at = 0
        while at < len(word) - 1:
            if (word[at], word[at + 1]) != pair:
                at += 1
                continue
            before, after = word[max(at - 1, 0) : at], word[at + 2 : at + 3]
            for symbol in before:
                self._frequencies[symbol, pair[0]] -= count
                self._add((symbol, new), place, count, changed)
            for symbol in after:
                self._frequencies[pair[1], symbol] -= count
                self._add((new, symbol), place, count, changed)
            word[at : at + 2] = [new]
            at += 1

    def _add(self, pair, place, count, changed):
        self._frequencies[pair] += count
        self._places[pair].add(place)
        changed.add(pair)
