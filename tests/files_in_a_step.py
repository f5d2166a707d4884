"""Count the files and functions of the package that a training step goes through.

Usage: python -m tests.files_in_a_step [masked_lm | family-T5 | ...]

A step is one batch in `fit()`, by a model that is compiled and built, so that what runs
once in a run isn't counted. Names are those of `tests.golden_outputs`.
"""

import pathlib
import sys
from collections import Counter

import keras

import keras_bertfam
from tests import golden_outputs

PACKAGE = str(pathlib.Path(keras_bertfam.__file__).parent)


def seen_in_step(name):
    """Run one step, and give how many functions of each file it called."""
    keras.utils.set_random_seed(0)
    (_, make), *_ = golden_outputs.jobs([name])
    model, data, _ = make()
    model.compile("adam", jit_compile=False, run_eagerly=True)
    batch = next(iter(data))
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    model.train_on_batch(x, y, weight)
    codes = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        model.train_on_batch(x, y, weight)
    finally:
        sys.setprofile(None)
    functions = {
        (code.co_filename, code.co_firstlineno)
        for code in codes
        if not code.co_name.startswith("<")
    }
    return Counter(file.removeprefix(PACKAGE) for file, _ in functions)


if __name__ == "__main__":
    for name in sys.argv[1:] or ["masked_lm", "family-T5"]:
        files = seen_in_step(name)
        for file, count in sorted(files.items()):
            print(f"  {count:3} {file}")
        print(f"{name}: {len(files)} files, {sum(files.values())} functions")
