"""Byte-pair encoding learned from words and how often they occur.

The result is what `tokenizers` learns, which has to read the whole text.

Reference: [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2.
"""

import collections
import heapq
from collections.abc import Iterable, Mapping, Sequence

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
        counts: words in the characters of the vocabulary, and how often they occur.
        size: int. The most tokens.
        special_tokens: the first tokens.
        alphabet: characters that are tokens whether or not they occur.
        word_end: what a word's last character has at its end.
        min_frequency: int. How often a pair must occur. Defaults to `2`.

    Returns:
        A tuple of the tokens, and of the pairs that were merged.
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
    """Counts of the pairs of symbols in words, kept up to date while some are merged.

    Args:
        words: list of lists of numbers of symbols, which change.
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
        """Give the most frequent pair, of equal ones the first, and its count."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._frequencies[pair]
            if count == -negative:
                return pair, count
            if count > 0:  # it has become rarer
                heapq.heappush(self._heap, (-count, pair))
        return None, 0

    def merge(self, pair: Pair, new: int) -> None:
        """Put one symbol in the place of a pair, in all words."""
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
