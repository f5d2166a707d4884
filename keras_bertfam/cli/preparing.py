"""Corpora that are prepared once for all runs, and vocabularies of them."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from keras_bertfam import corpora
from keras_bertfam.cli.inputs import check_prepared
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.cli.screen import loading
from keras_bertfam.types import Config, Tokenizer

RULES = {"c4": corpora.QualityRules.c4, "gopher": corpora.QualityRules.gopher}


def prepare(
    sources: Sequence[str],
    output: str,
    tokenizer: str | None = None,
    new_vocabulary: int | None = None,
    family: str | None = None,
    rules: Sequence[str] = (),
    near_duplicates: float = 0.8,
    report: Callable[[str], Any] = print,
    **options: Any,
) -> None:
    """Prepare a corpus.

    Args:
        sources: see `corpora.prepare`.
        output: see `corpora.prepare`.
        tokenizer: see `corpora.prepare`; or with `new_vocabulary` the kind of
            tokenizer, if it isn't the family's.
        new_vocabulary: int. Tokens of a vocabulary to learn of the sources.
        family: whose tokenizer to learn, BERT's by default; or see `corpora.prepare`.
        rules: names of `RULES`, and arguments of `QualityRules` such as
            `"min_words=20"`.
        near_duplicates: float. The `threshold` of `NearDuplicates`; 0 is none.
        report: function that takes a line of text.
        **options: arguments of `corpora.prepare`.

    Raises:
        ValueError: for neither a tokenizer nor a new vocabulary, or rules that there
            aren't.
    """
    check_prepared(
        sources, output, tokenizer, new_vocabulary, options.get("test_sets", ())
    )
    quality = quality_rules(rules)
    made: str | Tokenizer | None = tokenizer
    if new_vocabulary is not None:
        run = PretrainingRun(
            family=family or "bert", tokenizer=tokenizer, vocabulary_size=new_vocabulary
        )
    with loading():
        from keras_bertfam.cli.building import make_tokenizer
        from keras_bertfam.corpora.preparing.word_counts import count_words
    if new_vocabulary is not None:
        names = inspect.signature(count_words).parameters
        counting = {name: options[name] for name in names if name in options}
        report(f"Learning a vocabulary of at most {new_vocabulary} tokens.")
        made = make_tokenizer(run, count_words(sources, **counting))
    else:
        options["family"] = family
    manifest = corpora.prepare(
        sources,
        output,
        made,
        quality=quality,
        near_duplicates=near_duplicates or None,
        report=report,
        **options,
    )
    if not manifest.counts["documents"]:
        dropped = {each["name"]: each["dropped"] for each in manifest.filters}
        raise ValueError(
            "`sources` must have documents that are left by the rules. Received: none; "
            f"{output!r} is an empty corpus. Dropped: {dropped}."
        )


def quality_rules(rules: Sequence[str]) -> corpora.QualityRules:
    """Read rules by names and values; later ones take the place of those before.

    Args:
        rules: such as `["gopher", "min_words=20"]`.

    Raises:
        ValueError: for a name or a value that there isn't.
    """
    kinds = typing.get_type_hints(corpora.QualityRules)
    arguments: Config = {}
    for rule in rules:
        name, given, value = rule.partition("=")
        if name in RULES and not given:
            arguments |= RULES[name]().arguments()
            continue
        if name not in kinds:
            raise ValueError(
                f"`rule` must be one of {sorted(RULES)}, or a value for one of "
                f"{sorted(kinds)}, such as min_words=20. Received: {rule!r}."
            )
        arguments[name] = _value(name, value, kinds[name])
    return dataclasses.replace(corpora.QualityRules(), **arguments)


def _value(name, value, kind):
    """Read a value of the kind that an argument has."""
    kinds = typing.get_args(kind) or (kind,)
    if kinds[0] is bool and value in ("", "true", "false"):
        return value != "false"
    if typing.get_origin(kinds[0]) is tuple:
        return tuple(filter(None, value.split(",")))
    try:
        return kinds[0](value) if kinds[0] is not bool else bool(int(value))
    except ValueError:
        raise ValueError(
            f"`rule` must have a value of type {kinds[0].__name__} for {name}. "
            f"Received: {value!r}."
        ) from None
