"""The time of `import`, each in a fresh interpreter."""

import subprocess
import sys

from benchmarks.harness import Benchmark, Competitor

PROGRAM = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""


def imported(module):
    """Time the import of `module`; the backend comes with the environment."""

    def run(steps):
        return [
            float(
                subprocess.run(
                    [sys.executable, "-c", PROGRAM.format(module=module)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for _ in range(steps)
        ]

    return run


BENCHMARKS = {
    f"import-{backend}": Benchmark(
        f"Import, {backend}",
        tuple(
            Competitor(module, "imports:imported", {"module": module}, backend)
            for module in ("keras_hub", "keras_bertfam")
        ),
    )
    for backend in ("tensorflow", "jax", "torch")
}
