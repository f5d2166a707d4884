"""Prepare a corpus once for all runs, and learn its vocabulary."""

import dataclasses
import inspect
import os
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
    near_duplicates: float | None = None,
    keep_duplicates: bool = False,
    report: Callable[[str], Any] = print,
    **options: Any,
) -> None:
    """Prepare a corpus; learn its vocabulary first if wanted.

    Args:
        sources: see `corpora.prepare`.
        output: see `corpora.prepare`.
        tokenizer: see `corpora.prepare`. With `new_vocabulary`, the kind of tokenizer,
            or `None` for the family's.
        new_vocabulary: int. The most tokens of a vocabulary to learn from the sources.
        family: with `new_vocabulary`, the family whose kind of tokenizer is learned,
            BERT's by default. Otherwise see `corpora.prepare`.
        rules: names of `RULES`, and arguments of `QualityRules` such as
            `"min_words=20"`.
        near_duplicates: float. The `threshold` of `NearDuplicates`; with 0, near
            duplicates are kept. `None` for 0.8, or 0 with `keep_duplicates`.
        keep_duplicates: bool. Whether copies of a document are kept.
        report: function that takes a line of text.
        **options: arguments of `corpora.prepare`.

    Raises:
        ValueError: for neither a tokenizer nor a new vocabulary, for unknown rules, or
            if no document passes them.
    """
    test_sets, split = options.get("test_sets", ()), options.pop("split", None)
    feature = options.get("feature")
    check_prepared(
        sources, output, tokenizer, new_vocabulary, test_sets, split, feature
    )
    if split is not None:
        options["split"] = split
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
        parent = os.path.dirname(os.path.abspath(output))  # workers see `output`
        os.makedirs(parent, exist_ok=True)
        counts = count_words(sources, **counting, working_folder=parent)
        made = make_tokenizer(run, counts)
    else:
        options["family"] = family
    manifest = corpora.prepare(
        sources,
        output,
        made,
        quality=quality,
        near_duplicates="auto" if near_duplicates is None else near_duplicates or None,
        exact_duplicates=not keep_duplicates,
        report=report,
        **options,
    )
    if not manifest.counts["documents"]:
        dropped = {each["name"]: each["dropped"] for each in manifest.filters}
        raise ValueError(
            "`sources` must have documents that pass the rules. Received: none; "
            f"{output!r} is now an empty corpus. Dropped: {dropped}."
        )


def quality_rules(rules: Sequence[str]) -> corpora.QualityRules:
    """Read rules by names and values; later ones replace earlier ones.

    Args:
        rules: such as `["gopher", "min_words=20"]`.

    Raises:
        ValueError: for an unknown name, or a value of another type.
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
