"""What every task computes, written by one version of the package, compared by another.

Usage: KERAS_BACKEND=... python -m tests.golden_outputs write FOLDER [NAME...]
       KERAS_BACKEND=... python -m tests.golden_outputs compare FOLDER [NAME...]

For a change that moves code and must leave results as they are. The first writes a
preset of each objective, of each family and of each family with each fine-tuning task,
what it answers, a digest of its batches, and the losses of a few steps. The second
makes all of it anew, reads the presets of the other version, prints what differs and
ends with 1. Each backend has files of its own.
"""

import functools
import itertools
import json
import pathlib
import sys
import traceback
import zlib

import keras
import numpy as np

from tests import objective_worker, test_product, tiny_families, tiny_masked_lm

STEPS = 10
OBJECTIVES = {"masked_lm": tiny_masked_lm, **objective_worker.OBJECTIVES}
# An index of passages is no part of a preset, and a distiller's is its student's.
WITHOUT_PRESET = (
    *("distillation", "knowledge_augmented", "open_questions"),
    "retrieval_augmented",
)
JAX = keras.backend.backend() == "jax"


def of_objective(name):
    """A pre-training task, its batches, and one of them."""
    tiny = OBJECTIVES[name]
    sharp = {"temperature": 1e-6} if name == "replaced_tokens" else {}
    model = tiny.make_model(**sharp)
    data = tiny.stream(model)
    asked = keras.utils.unpack_x_y_sample_weight(next(iter(data)))[0]
    return model, data, functools.partial(answers_of_batch, asked)


def of_family(name):
    """A task with weights that don't depend on initialisers, and a batch."""
    model = tiny_families.task_of(name)
    model.compile(learning_rate=1e-3, jit_compile=JAX)
    batch = tiny_families.batch_of(name)
    return model, [batch], functools.partial(answers_of_batch, batch[0])


def of_fine_tuning(name, task):
    """A task with raw texts."""
    model, x, y = test_product.made(name, task)
    model.compile(learning_rate=1e-3, jit_compile=JAX)
    asked = x[0] if task == "TextEmbedder" else x
    return model, [(x, y)], lambda model: model.predict(asked, verbose=0)


def answers_of_batch(batch, model):
    return model.predict_on_batch(batch)


def jobs(wanted):
    """The names of what is made, and functions that make it."""
    each = {name: functools.partial(of_objective, name) for name in OBJECTIVES}
    for name in tiny_families.FAMILIES:
        each[f"family-{name}"] = functools.partial(of_family, name)
    for name, task in itertools.product(test_product.NAMES, test_product.TASKS):
        each[f"{name}-{task}"] = functools.partial(of_fine_tuning, name, task)
    for name in wanted or each:
        keras.utils.set_random_seed(0)
        yield name, each[name]


def digest(arrays):
    """A number that stands for all arrays of a structure, their dtypes and shapes."""
    number = 0
    for array in keras.tree.flatten(arrays):
        array = keras.ops.convert_to_numpy(array)
        content = array.tolist() if array.dtype == object else array.tobytes()
        number = zlib.crc32(f"{array.dtype}{array.shape}{content!r}".encode(), number)
    return number


def losses_of(model, data):
    """The losses of the first steps."""
    recorder = tiny_masked_lm.StepLosses()
    if isinstance(data, list):
        [batch] = data
        names = ("x", "y", "sample_weight")
        settings = {**dict(zip(names, batch, strict=False)), "epochs": STEPS}
        # All in one batch, so that nothing is shuffled.
        model.fit(**settings, batch_size=64, callbacks=[recorder], verbose=0)
    else:
        model.fit(data, epochs=2, callbacks=[recorder], verbose=0)
    return recorder.losses[:STEPS]


def results_of(model, data, ask):
    """All that is compared but the answers of a preset that is read."""
    results = {"answers": numbers(ask(model))}
    if not isinstance(data, list):
        results["batches"] = digest(list(itertools.islice(data, 3)))
    return {**results, "losses": losses_of(model, data)}


def numbers(outputs):
    """Numbers and texts by themselves, in their order."""
    leaves = keras.tree.map_structure(
        lambda x: x if isinstance(x, str) else keras.ops.convert_to_numpy(x),
        outputs,
    )
    return test_product.flat(leaves)


def write(folder, wanted):
    """Write what this version computes."""
    for name, make in jobs(wanted):
        model, data, ask = make()
        if name not in WITHOUT_PRESET:
            model.save_to_preset(str(folder / name))
        content = json.dumps(results_of(model, data, ask))
        (folder / f"{name}.json").write_text(content)
        print(name, flush=True)


def compare(folder, wanted):
    """Print what differs from what is written, and return how many do."""
    different = 0
    for name, make in jobs(wanted):
        expected = json.loads((folder / f"{name}.json").read_text())
        try:
            model, data, ask = make()
            found = results_of(model, data, ask)
            if name not in WITHOUT_PRESET:
                again = type(model).from_preset(str(folder / name))
                found["preset"] = numbers(ask(again))
                expected["preset"] = expected["answers"]
            wrong = [key for key in expected if not same(found[key], expected[key])]
        except Exception:
            traceback.print_exc()
            wrong = ["an error"]
        different += bool(wrong)
        print(name, *(wrong or ["as before"]), flush=True)
    return different


def same(found, expected):
    """Whether all is equal, numbers to 1e-6 of their size."""
    if not isinstance(expected, list):
        return found == expected
    return len(found) == len(expected) and all(
        one == other
        if isinstance(other, str)
        else np.allclose(one, other, rtol=1e-6, atol=1e-6)
        for one, other in zip(found, expected, strict=True)
    )


if __name__ == "__main__":
    command, folder, *wanted = sys.argv[1:]
    folder = pathlib.Path(folder, keras.backend.backend())
    folder.mkdir(parents=True, exist_ok=True)
    sys.exit(bool({"write": write, "compare": compare}[command](folder, wanted)))
