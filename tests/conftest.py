"""What every test file may rely on."""

import fnmatch
import functools
import gc
import importlib.metadata
import os
import pathlib
import sys
import zlib

import pytest

from tests.checkout import ROOT

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
    analysis/heads/test_attention_view.py analysis/test_plots.py analysis/test_report.py
    conformance/test_hf_tokenizers.py corpora datasets layers/corruption layers/data
    models/test_parameter_counts.py metrics/test_squad.py tasks/*_preprocessor.py
    tasks/test_recipes.py test_cli.py test_prediction.py test_pretraining_examples.py
    test_pretraining_runs.py test_analyse.py test_benchmarks.py test_whole_files.py
    test_corpus.py test_imports.py test_readme_names.py test_screen.py tokenizers
    presets/test_damaged*.py presets/checkpoints/test_fairseq.py presets/test_folders.py
    presets/test_cards.py presets/*/test_fuzz*.py presets/test_hub*.py
    presets/test_memory.py presets/tokenizer_formats
    presets/checkpoints/test_reading*.py presets/test_saving_over.py
    presets/checkpoints/test_tensorflow*.py presets/test_untrusted*.py
    presets/checkpoints/test_untrusted*.py presets/test_upload*.py
"""
# Layers that TensorFlow traces as Keras has them.
MODEL_CODE = tuple(
    f"keras_bertfam.layers.{name}."
    for name in ("attention", "blocks", "heads", "recurrent")
)
BACKEND = os.environ["KERAS_BACKEND"]
# Tests that take long and reach little alone, as `make test-value` finds them: on
# TensorFlow slow ones, which no backend runs in CI, and on the others any.
LISTS = {
    path.stem: {*path.read_text().splitlines()}
    for path in (ROOT / "tests" / "only_for_releases").glob("*.txt")
}
ONLY_FOR_RELEASES = LISTS["tensorflow"] | LISTS.get(BACKEND, set())
FIRST_BACKEND = BACKEND == "tensorflow"
# Files of few tests that take long. Begun last, one process would work on them alone.
BEGUN_FIRST = """
    test_documented_code.py test_objective_runs.py test_torch_graph.py test_sharding.py
    test_late_interaction.py test_distribution.py test_product.py test_cross_encoder.py
""".split()
# Who runs a slow test in CI: most often who compiles nothing, a third of JAX's time.
SHARES = ("torch", "torch", "torch", "torch", "tensorflow", "tensorflow", "jax")
collect_ignore_glob = [] if FIRST_BACKEND else ONCE.split()


def pytest_addoption(parser):
    parser.addoption(
        "--ci",
        action="store_true",
        help="leave out what only releases run, and run each slow test on one backend",
    )
    parser.addoption(
        "--seed", type=int, default=0, help="draw other texts: a test says its seed"
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Forget a file that a missing library skips, as it is half imported.

    A file that imports names of it is skipped like it then.
    """
    report = yield
    if report.skipped and collector.path.suffix == ".py":
        path = collector.path.relative_to(ROOT).with_suffix("")
        sys.modules.pop(".".join(path.parts), None)
    return report


def pytest_collection_modifyitems(config, items):
    """Leave out what is for another backend, and with `--ci` what is for releases."""
    in_ci = config.getoption("ci")
    if in_ci and FIRST_BACKEND and not any("::" in arg for arg in config.args):
        refuse_unknown(item.nodeid for item in items)
    left_out = {item for item in items if sits_out(item, in_ci)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.path.name not in BEGUN_FIRST)


def refuse_unknown(collected):
    """Refuse names in the lists of tests for releases that no test has."""
    names = {*collected}
    files = {name.partition("::")[0] for name in names}
    unknown = [
        name
        for name in sorted(set().union(*LISTS.values()) - names)
        if name.partition("::")[0] in files
    ]
    if unknown:
        raise pytest.UsageError(
            f"tests/only_for_releases names tests that there aren't: {unknown}. "
            "`make test-value` finds them anew."
        )


def sits_out(item, in_ci):
    """Tell whether a test is left out on this backend."""
    if any_backend_will_do(item):
        if not FIRST_BACKEND:
            return True
    elif in_ci and backend_of(item) not in (None, BACKEND):
        return True
    levels = [level for mark in item.iter_markers("slow") for level in mark.args]
    return in_ci and ("release" in levels or item.nodeid in ONLY_FOR_RELEASES)


def any_backend_will_do(item):
    """Tell whether a test runs on TensorFlow only."""
    return runs_once(item.path) or item.get_closest_marker("any_backend") is not None


@functools.cache
def runs_once(file):
    path = pathlib.Path(os.path.relpath(file, ROOT / "tests"))
    return any(
        fnmatch.fnmatch(str(part), pattern)
        for part in (path, *path.parents)
        for pattern in ONCE.split()
    )


def backend_of(item):
    """Choose the backend of a slow test by its name.

    It is `None` for a test that all backends run: one that is quick, that compares with
    another implementation, or that some backends skip.
    """
    compares = (ROOT / "tests" / "conformance") in item.path.parents
    # These are run, and compared with nothing.
    compares = compares and item.path.name != "test_kerashub_routines.py"
    marks = {mark.name for mark in item.iter_markers()}
    if compares or "slow" not in marks or "skipif" in marks:
        return None
    return SHARES[zlib.crc32(item.nodeid.encode()) % len(SHARES)]


@pytest.fixture
def seed(request):
    """What random texts are drawn by: the same in every run, unless `--seed` says."""
    number = request.config.getoption("seed")
    print("seed", number)
    return number


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


@pytest.fixture(autouse=True, scope="session")
def graphs_as_they_are():
    """Spare TensorFlow the improvement of graphs, which takes longer than they run."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture(autouse=True)
def fixed_seed():
    """Make every test start from the same state of the global generators."""
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def functions_of_autograph():
    """Note the functions that AutoGraph rewrites."""
    from tensorflow.python.autograph.pyct import transpiler

    functions, rewrite = [], transpiler.PyToPy.transform_function

    def note(self, function, context):
        functions.append(function)
        return rewrite(self, function, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transpiler.PyToPy, "transform_function", note)
        yield functions


@pytest.fixture(autouse=True)
def rewritten_functions(functions_of_autograph):
    """Let AutoGraph rewrite none of the library's functions, which takes long.

    What a test itself gives to `Dataset.map` it rewrites, with all that this calls; of
    an object, the first method. Model code can't tell it anything: Keras does.
    """
    functions_of_autograph.clear()
    yield functions_of_autograph
    names = {f"{f.__module__}.{f.__qualname__}" for f in functions_of_autograph}
    if not any(name.startswith("tests.") for name in names):
        ours = [
            name
            for name in names
            if name.startswith("keras_bertfam.")
            and not name.startswith(MODEL_CODE)
            and not name.endswith(".__call__")
        ]
        assert not ours
