"""Prints what becomes of each key of each format: `python -m tests.key_table`.

With `--counts` only how many keys are used, have no meaning here, or are refused.
"""

import collections
import dataclasses
import sys

from keras_bertfam.presets.checkpoints import (
    config_keys,
    file_keys,
    sentence_transformers,
)
from keras_bertfam.presets.families import transformers_tables
from keras_bertfam.presets.tokenizer_formats import tokenizer_pipelines

USED, NOTHING, REFUSED = "used", "no meaning here", "refused"


def rows():
    """Formats, keys, what becomes of them, and why."""
    for keys in file_keys.ALL:
        for row in keys.entries():
            yield keys.file, *row
    for family, table in transformers_tables().items():
        for row in _of_family(table):
            yield f"config.json of {family}", *row
    for name, known in sentence_transformers.MEANINGLESS.items():
        file = name if "." in name else f"{name}/config.json of sentence-transformers"
        for key in sentence_transformers.USED[name]:
            yield file, key, USED, ""
        yield from _of_values(file, known)
    # KerasHub's are read by its classes.
    from keras_bertfam.presets.checkpoints import kerashub

    for name, known in kerashub.KEYS.items():
        file = f"{name} of KerasHub"
        used = {"tokenizer.json": kerashub._TOKENIZERS}.get(name, ())
        if name == "preprocessor.json":
            used = (*kerashub._PREPROCESSORS, "truncate")
        elif name == "task.json":
            used = ("activation", "dropout")
        for key in used:
            yield file, key, USED, ""
        yield from _of_values(file, known)
    for kind, (used, others) in tokenizer_pipelines._MODELS.items():
        file = f"tokenizer.json, {kind}"
        for key in (*used, *tokenizer_pipelines._SECTIONS):
            yield file, key, USED, ""
        for key in tokenizer_pipelines._NO_MEANING:
            yield file, key, NOTHING, "of rows, which preprocessors lay out here"
        yield from _of_values(file, others)
    from keras_bertfam.cli.runs import FILE_NAME, PretrainingRun

    for field in dataclasses.fields(PretrainingRun):
        yield FILE_NAME, field.name, USED, ""
    yield FILE_NAME, "recipe", USED, ""


def _of_values(file, known):
    for key, values in known.items():
        if values is None:
            yield file, key, NOTHING, ""
        else:
            said = f"unless {' or '.join(map(repr, values))}" if values else "always"
            yield file, key, REFUSED, said


def _of_family(table):
    used = {theirs for _, theirs, _ in table.config} | {*table.styles}
    used |= {*config_keys._READ}
    for keys in table.dropouts.values():
        used |= {*keys}
    refused = {key: (value,) for key, value in table.required_config.items()}
    for required in table.required_heads.values():
        refused |= required
    for key in sorted(used - refused.keys()):
        yield key, USED, ""
    for key, values in refused.items():
        yield key, REFUSED, f"unless {' or '.join(map(repr, values))}"
    for reason, keys in config_keys.MEANINGLESS.items():
        for key in keys.split():
            if key not in used and key not in refused:
                yield key, NOTHING, reason


def counts():
    """A Counter of what becomes of keys, by format."""
    found: dict[str, collections.Counter] = {}
    for file, _, becomes, _ in rows():
        found.setdefault(file, collections.Counter())[becomes] += 1
    return found


def main():
    if "--counts" not in sys.argv:
        for row in rows():
            print(" | ".join(row).rstrip(" |"))
        return
    total: collections.Counter = collections.Counter()
    print(f"{'format':60} {USED:>8} {NOTHING:>16} {REFUSED:>8}")
    for file, each in counts().items():
        print(f"{file[:60]:60} {each[USED]:8} {each[NOTHING]:16} {each[REFUSED]:8}")
        total += each
    print(f"{'all':60} {total[USED]:8} {total[NOTHING]:16} {total[REFUSED]:8}")


if __name__ == "__main__":
    main()
