"""What every test file may rely on."""

import fnmatch
import functools
import gc
import importlib.metadata
import os
import pathlib
import zlib

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

# glibc's default. That it is chosen leaves allocation as it is: processes that keep the
# memory of hundreds of models grow too large.
os.environ.setdefault("MALLOC_ARENA_TEST", "8")

# JAX compiles each operation for each shape, which takes longer than to run it.
for variable, value in {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(variable, value)

# XLA, which TensorFlow has as well: the older emitters compile in half the time. It
# stops at a flag that it doesn't know, so this is for versions that were tried.
TRIED = {"jaxlib": ("0.10.", "0.9.", "0.8."), "tensorflow": ("2.20.", "2.21.")}
XLA_FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)


def were_tried(versions):
    """Whether all installed packages are of versions that know the flags."""
    for package, starts in versions.items():
        try:
            if not importlib.metadata.version(package).startswith(starts):
                return False
        except importlib.metadata.PackageNotFoundError:
            pass
    return True


if XLA_FLAGS not in os.environ.get("XLA_FLAGS", "") and were_tried(TRIED):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}".strip()

if os.environ["KERAS_BACKEND"] == "jax" and were_tried(TRIED):
    # JAX makes a context of MLIR for each operation that it compiles: a seventh of the
    # tests' time. One does.
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)

# What no backend takes part in runs once, on TensorFlow: tf.data, files that are read
# and checked, the package's own text. In other files the marker `any_backend` says so.
ONCE = """
    analysis/test_attention_page.py analysis/test_plots.py analysis/test_report.py
    conformance/test_hf_tokenizers.py corpora datasets layers/corruption
    layers/data models/test_parameter_counts.py metrics/test_squad.py
    tasks/*/*_preprocessor.py tasks/test_recipes.py test_cli.py test_prediction.py
    test_pretraining_examples.py test_pretraining_runs.py
    test_analyse.py test_benchmarks.py test_whole_files.py
    test_corpus.py test_imports.py test_readme_names.py
    tokenizers presets/test_damaged*.py presets/test_fairseq.py presets/test_folders.py
    presets/test_cards.py presets/test_fuzz*.py presets/test_hub*.py
    presets/test_memory.py presets/test_piece_models.py
    presets/test_reading*.py presets/test_saving_over.py presets/test_tensorflow1.py
    presets/test_tokenizer_*.py presets/test_untrusted*.py presets/test_upload*.py
"""
BACKENDS = ("tensorflow", "jax", "torch")
BACKEND = os.environ["KERAS_BACKEND"]
FIRST_BACKEND = BACKEND == BACKENDS[0]
collect_ignore_glob = [] if FIRST_BACKEND else ONCE.split()


def pytest_addoption(parser):
    parser.addoption(
        "--share-thorough",
        action="store_true",
        help="run each thorough test on one of the backends, comparisons on all",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out on a backend what is for another one."""
    shared = config.getoption("share_thorough")
    if FIRST_BACKEND and not shared:
        return
    left_out = []
    for item in items:
        if needs_one_backend(item):
            sits_out = not FIRST_BACKEND
        else:
            sits_out = shared and backend_of(item) not in (None, BACKEND)
        if sits_out:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        kept = set(items) - set(left_out)
        items[:] = [item for item in items if item in kept]


def needs_one_backend(item):
    """Whether no backend takes part in a test."""
    path = pathlib.Path(os.path.relpath(item.path, ROOT / "tests"))
    once = any(
        fnmatch.fnmatch(str(part), pattern)
        for part in (path, *path.parents)
        for pattern in ONCE.split()
    )
    return once or item.get_closest_marker("any_backend") is not None


def backend_of(item):
    """The backend that a thorough test runs on when they share, by its name.

    `None` for a test that isn't shared: one that compares, or that some backends skip.
    """
    compares = (ROOT / "tests" / "conformance") in item.path.parents
    marks = {mark.name for mark in item.iter_markers()}
    if compares or "thorough" not in marks or marks & {"slow", "skipif"}:
        return None
    return BACKENDS[zlib.crc32(item.nodeid.encode()) % len(BACKENDS)]


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data, which no default test may need."""
    path = pathlib.Path(os.environ.get("BERTFAM_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no data folder at {path}: set BERTFAM_DATA")
    return path


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """Spare the garbage collector what earlier files and all imports have made.

    Keras collects for every layer that it quantises, which took longer than the rest.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fixed_seed():
    """Make every test start from the same state of the global generators."""
    import keras

    keras.utils.set_random_seed(0)
