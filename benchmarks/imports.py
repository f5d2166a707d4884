"""The time of `import`, of the first use and of `--help`, in fresh interpreters."""

import subprocess
import sys

from benchmarks.harness import Benchmark, Competitor

PROGRAM = """
import time
start = time.perf_counter()
{lines}
print(time.perf_counter() - start)
"""
HELP = """
from typer.testing import CliRunner
from keras_bertfam.cli.app import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
"""
# What imports take that load all of a library, and what answers without.
LINES = {
    "keras_hub": "import keras_hub",
    "keras_bertfam, all of it": "from keras_bertfam import lazy\nlazy.load_all()",
    "keras_bertfam, until it is used": "import keras_bertfam",
    "keras_bertfam, --help": HELP,
}


def imported(lines):
    """Time some lines; the backend comes with the environment."""

    def run(steps):
        return [
            float(
                subprocess.run(
                    [sys.executable, "-c", PROGRAM.format(lines=lines)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout.splitlines()[-1]
            )
            for _ in range(steps)
        ]

    return run


BENCHMARKS = {
    f"import-{backend}": Benchmark(
        f"Import, {backend}",
        tuple(
            Competitor(name, "imports:imported", {"lines": lines}, backend)
            for name, lines in LINES.items()
        ),
    )
    for backend in ("tensorflow", "jax", "torch")
}
