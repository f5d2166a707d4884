"""Settings of generation: what texts may be, which are given, names of samplers."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import check_number, checked


@checked
@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """What a text may be that `generate()` writes, and how a beam search chooses.

    They mean what `generate` of `transformers` means by these names. Rules of tokens
    hold for every sampler, and the text is what it begins with as well: of a
    `TextToText` its first tokens, not what it reads.

    Args:
        min_length: int. A text with what it begins with has so many tokens before one
            that ends it.
        min_new_tokens: int. So many tokens come before one that ends a text.
        repetition_penalty: float. Scores of tokens that a text has already are divided
            by it, or multiplied if negative: above 1 they become less likely. Scores
            are logits, and log-probabilities in a beam search.
        no_repeat_ngram_size: int. No run of so many tokens comes twice; 0 for any.
        bad_words: sequence of words that no text gets, each a sequence of ids, or a
            string, if the task has a tokenizer. What a text begins with may have
            them. A text doesn't end with a stop token that is one of them.
        forced_first_token: int or `None`. The first new token of each text.
        forced_second_token: int or `None`. The first new token of each text that
            begins with a single one.
        forced_last_token: int or `None`. The token at the last place of a text that is
            as long as can be.
        num_beams: int. Texts that `sampler="beam"` goes on with. A
            `keras_hub.samplers.BeamSampler` has its own number.
        length_penalty: float. A finished text's score is its log-probability divided
            by `length ** length_penalty`, where the length counts new tokens, the stop
            token too. 0 compares sums, and what is negative favours short texts.
        early_stopping: bool or `"never"`. When a search ends: `True` as soon as
            `num_beams` texts are finished, `False` if the likeliest that runs scores no
            more than the worst finished one, `"never"` if it couldn't at any length.
        num_beam_groups: int. Into so many groups of equal size the beams are divided,
            each of which finds texts of its own.
        diversity_penalty: float. What a token's log-probability loses for each beam of
            the groups before that goes on with it in the same step.
        num_return_sequences: int. Texts for each prompt, the best first: of a beam
            search, and fewer if there are fewer; or sampled independently, and put in
            order by the model's log-probability over `length ** length_penalty`.
        return_scores: bool. Whether the scores are given, too.
        max_tokens: int. The most that `max_length` may be for a model without a last
            position. A loop over the tokens that is compiled can't be interrupted.

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
        if self.early_stopping != "never":  # 0 and 1 are equal to these
            object.__setattr__(self, "early_stopping", bool(self.early_stopping))
        words = tuple(
            word if isinstance(word, str) else _ids(word) for word in self.bad_words
        )
        # A value that can be compared: texts are written by what is compiled for it.
        object.__setattr__(self, "bad_words", words)

    def replace(self, **values: Any) -> "GenerationSettings":
        """Make a copy with other values for some settings."""
        return dataclasses.replace(self, **values)


def _ids(word):
    try:
        ids = tuple(map(int, word))
    except (TypeError, ValueError):
        ids = ()
    if not ids or min(ids) < 0:
        raise ValueError(
            "`bad_words` must be strings, or sequences of ids that aren't empty. "
            f"Received: {word!r}."
        )
    return ids


SAMPLERS = ("greedy", "top_k", "top_p", "random", "beam", "contrastive")
