"""What finds the library whole, whichever part of it is used first; see `main`.

Most of it is run by `tests/test_lazy_names.py` in a process of its own, in which the
library is imported anew for each check, and the frameworks once.
"""

import importlib
import json
import os
import pathlib
import pickle
import sys
import threading

OURS = "keras_bertfam"


def registered():
    import keras

    # By a name that the library doesn't have, as the values don't load it.
    assert keras.saving.get_registered_object(f"{OURS}>Nothing") is None
    return [n for n in keras.saving.get_custom_objects() if n.startswith(f"{OURS}>")]


def backbones():
    return importlib.import_module(f"{OURS}.presets.families").BACKBONES


def families():
    return importlib.import_module(f"{OURS}.presets.families").FAMILIES


def presets():
    return importlib.import_module(f"{OURS}.presets").list_presets()


def strategies():
    module = importlib.import_module(f"{OURS}.layers.corruption.strategies")
    return module.MaskingStrategy.named


def objectives():
    # Of a module that has some of them.
    module = importlib.import_module(f"{OURS}.layers.corruption.text_objectives")
    return module.DenoisingObjective.named


def layouts():
    return importlib.import_module("keras_bertfam.layers.data.pairs.segments").layouts()


def head_styles():
    module = importlib.import_module(f"{OURS}.tasks.finetuning.summary_task")
    return module.head_styles()


def fine_tuning():
    return importlib.import_module(f"{OURS}.presets.converting.heads").FINE_TUNING


# What knows its members by their registration, and so has to find those that nobody
# has used yet.
REGISTRIES = {
    each.__name__: each
    for each in (
        registered,
        backbones,
        families,
        presets,
        strategies,
        objectives,
        layouts,
        head_styles,
        fine_tuning,
    )
}


def load_model(folder):
    import keras

    return keras.models.load_model(folder / "model.keras")


def deserialize(folder):
    import keras

    return keras.saving.deserialize_keras_object(config_of(folder))


def from_config_of_keras_hub(folder):
    import keras_hub

    return keras_hub.models.Backbone.from_preset(str(folder / "preset"))


def from_preset(folder):
    module = importlib.import_module(f"{OURS}.models.base")
    return module.TokenBackbone.from_preset(str(folder / "preset"))


def unpickle(folder):
    return pickle.loads((folder / "model.pickle").read_bytes())


LOADERS = (load_model, deserialize, from_config_of_keras_hub, from_preset, unpickle)


def config_of(folder):
    config = json.loads((folder / "preset" / "config.json").read_text())
    # A file of another version has the module where its class was then.
    return {**config, "module": f"{OURS}.models.where_it_was_before"}


def renew():
    """Import the library as if nobody had used it."""
    import keras

    for name in [name for name in sys.modules if name.split(".")[0] == OURS]:
        del sys.modules[name]
    objects = keras.saving.get_custom_objects()
    for name in [name for name in objects if name.startswith(f"{OURS}>")]:
        del objects[name]
    return importlib.import_module(OURS)


def use_at_once(library):
    """Two threads use the library first, by different names."""
    found, errors = [], []

    def use(*names):
        try:
            value = library
            for name in names:
                value = getattr(value, name)
            found.append(value)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=use, args=names)
        for names in (
            ("tasks", "MaskedLM"),
            ("layers", "MaskTokens"),
            ("presets", "list_presets"),
            ("models", "Backbone"),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(found) == len(threads), errors


def define_a_namesake(library):
    """The user's class is refused, though it came before the library's."""
    module = importlib.import_module(f"{OURS}.layers.corruption.strategies")
    try:
        type("Mine", (module.MaskingStrategy,), {"name": "words", "__module__": "me"})
    except ValueError as error:
        assert "WholeWords" in str(error), error
    else:
        raise AssertionError("two strategies have one name")


def main(folder, backend):
    """Check all of it.

    Args:
        folder: has a backbone as `preset`, `model.keras` and `model.pickle`, and
            `registries.json`.
        backend: for Keras; that of the environment is another one.
    """
    folder = pathlib.Path(folder)
    importlib.import_module(OURS)
    os.environ["KERAS_BACKEND"] = backend
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16")
    heads = importlib.import_module("keras_bertfam.layers.heads.heads")
    layer = heads.Pooler(4)
    assert keras.backend.backend() == backend
    assert layer.dtype_policy.name == "mixed_bfloat16"
    keras.config.set_dtype_policy("float32")
    expected = json.loads((folder / "registries.json").read_text())
    for name, registry in REGISTRIES.items():
        renew()
        found = sorted(registry())
        assert found == expected[name], (name, {*found} ^ {*expected[name]})
    for load in LOADERS:
        renew()
        assert type(load(folder)).__name__ == "BertBackbone", load
    use_at_once(renew())
    define_a_namesake(renew())
    for name in importlib.import_module(OURS).__all__:
        renew()
        namespace = (
            importlib.import_module(f"{OURS}.{name}") if name[0] != "_" else None
        )
        for each in getattr(namespace, "__all__", [])[:1]:
            getattr(namespace, each)


if __name__ == "__main__":
    main(*sys.argv[1:])
