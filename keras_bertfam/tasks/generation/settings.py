"""Settings of generation: rules for texts, how many are returned, names of samplers."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import check_number, checked


@checked
@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """Rules for the texts that `generate()` writes, and settings of its beam search.

    The names mean the same as in `generate` of `transformers`. Rules for tokens hold
    for every sampler. They count the tokens that a text begins with as part of it: a
    prompt, or the first tokens of a `TextToText`, but not the text that it reads.

    Args:
        min_length: int. The fewest tokens of a text before a stop token, those it
            begins with included.
        min_new_tokens: int. The fewest new tokens before a stop token. Given in a dict,
            it takes the place of a default `min_length`.
        repetition_penalty: float. Above 1, tokens that are already in a text become
            less likely: their scores are divided by it, or multiplied if they are
            negative. Scores are logits; in a beam search, log-probabilities.
        no_repeat_ngram_size: int. No run of so many tokens occurs twice; 0 allows all.
        bad_words: sequence of words that aren't written, each a sequence of ids, or a
            string if the task has a tokenizer; a string isn't written at the start of a
            text, nor behind a space. The tokens that a text begins with may
            contain them. A stop token that is one of them doesn't end a text.
        forced_first_token: int or `None`. The first new token of each text.
        forced_second_token: int or `None`. The first new token of each text that begins
            with a single token.
        forced_last_token: int or `None`. The last token of a text that reaches the
            maximal length.
        num_beams: int. Beams of `sampler="beam"`, which several of them in a dict
            choose if no sampler is given. A `keras_hub.samplers.BeamSampler` has its
            own number.
        length_penalty: float. A finished text's score is its log-probability divided by
            `length ** length_penalty`. The length counts new tokens with the stop
            token. 0 compares log-probabilities; negative values favour short texts.
        early_stopping: bool or `"never"`. When a search ends: with `True`, as soon as
            `num_beams` texts are finished; with `False`, if the likeliest unfinished
            text scores no more than the worst finished one; with `"never"`, if it
            couldn't score more at any length.
        num_beam_groups: int. Number of groups of equal size into which the beams are
            divided. Each group finds texts of its own.
        diversity_penalty: float. It is subtracted from a token's log-probability for
            each beam of an earlier group that takes the token in the same step.
        num_return_sequences: int. Texts for each prompt, the best first. A beam search
            may give fewer. Samplers draw the texts independently; they are sorted by
            the model's log-probability over `length ** length_penalty`.
        return_scores: bool. Whether scores are returned, too.
        max_tokens: int. The greatest `max_length` for a model without a maximal
            position. It protects you from a long wait: a compiled loop can't be
            interrupted.

    Raises:
        ValueError: for a value that is out of its range.

    Example:

    ```python
    backbone = keras_bertfam.models.GPT2Backbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.CausalLM(backbone)
    settings = keras_bertfam.tasks.GenerationSettings(
        num_beams=3, length_penalty=0.8, num_return_sequences=2, return_scores=True)
    texts, scores = model.generate([[5, 6, 7]], 12, "beam", [4], settings)
    ```

    References: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7, for
    lengths; [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1, for
    repetitions; [Paulus et al., 2017](https://arxiv.org/abs/1705.04304), section 2.5;
    [Vijayakumar et al., 2016](https://arxiv.org/abs/1610.02424), section 4, for groups.
    """

    min_length: int = 0
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words: Sequence[Any] = ()
    forced_first_token: int | None = None
    forced_second_token: int | None = None
    forced_last_token: int | None = None
    num_beams: int = 5
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    num_return_sequences: int = 1
    return_scores: bool = False
    max_tokens: int = 16384

    def __post_init__(self) -> None:
        for name, least in (
            ("min_length", 0),
            ("min_new_tokens", 0),
            ("no_repeat_ngram_size", 0),
            ("num_beams", 1),
            ("num_beam_groups", 1),
            ("num_return_sequences", 1),
            ("max_tokens", 1),
        ):
            check_number(name, getattr(self, name), least)
        for name in ("repetition_penalty", "length_penalty", "diversity_penalty"):
            check_number(name, getattr(self, name), -math.inf)
        for name in ("forced_first_token", "forced_second_token", "forced_last_token"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0)
        if self.repetition_penalty <= 0:
            raise ValueError(
                "`repetition_penalty` must be positive. "
                f"Received: repetition_penalty={self.repetition_penalty}."
            )
        if self.diversity_penalty < 0 or (
            self.diversity_penalty and self.num_beam_groups == 1
        ):
            raise ValueError(
                "`diversity_penalty` must not be negative, and 0 without groups of "
                f"beams. Received: diversity_penalty={self.diversity_penalty} and "
                f"num_beam_groups={self.num_beam_groups}."
            )
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(
                '`early_stopping` must be `True`, `False` or "never". '
                f"Received: early_stopping={self.early_stopping!r}."
            )
        if isinstance(self.bad_words, str | bytes):
            raise ValueError(
                "`bad_words` must be a sequence of words. "
                f"Received: bad_words={self.bad_words!r}."
            )
        if self.early_stopping != "never":  # 0 and 1 equal `False` and `True`
            object.__setattr__(self, "early_stopping", bool(self.early_stopping))
        words = tuple(
            word if isinstance(word, str) else _ids(word) for word in self.bad_words
        )
        # Settings must be comparable: a function is compiled for each of them.
        object.__setattr__(self, "bad_words", words)

    def replace(self, **values: Any) -> "GenerationSettings":
        """Make a copy with other values for some settings."""
        return dataclasses.replace(self, **values)


def _ids(word):
    try:
        ids = () if isinstance(word, bytes) else tuple(map(operator.index, word))
    except TypeError:
        ids = ()
    if not ids or min(ids) < 0:
        raise ValueError(
            "`bad_words` must be strings, or sequences of ids that aren't empty. "
            f"Received: {word!r}."
        )
    return ids


SAMPLERS = ("greedy", "top_k", "top_p", "random", "beam", "contrastive")
