"""What every test file may rely on."""

import os
import pathlib

import pytest

# Read by the frameworks when they are imported: before anything else here.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    for variable in (
        "OMP_NUM_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
    ):
        os.environ.setdefault(variable, "1")

ROOT = pathlib.Path(__file__).parents[1]

# JAX compiles each operation for each shape, which takes longer than to run it.
for variable, value in {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(variable, value)

# What no backend takes part in: tf.data layers, and files that are read and checked.
collect_ignore, collect_ignore_glob = [], []
if os.environ["KERAS_BACKEND"] != "tensorflow":
    collect_ignore += ["datasets", "layers/corruption", "layers/data", "tokenizers"]
    collect_ignore_glob += ["tasks/*/*_preprocessor.py"]
    collect_ignore_glob += [
        f"presets/test_{name}.py"
        for name in "damaged* fairseq fuzz* hub reading* tensorflow1 tokenizer_files "
        "untrusted*".split()
    ]


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data, which no default test may need."""
    path = pathlib.Path(os.environ.get("BERTFAM_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no data folder at {path}: set BERTFAM_DATA")
    return path


@pytest.fixture(autouse=True)
def fixed_seed():
    """Make every test start from the same state of the global generators."""
    import keras

    keras.utils.set_random_seed(0)
