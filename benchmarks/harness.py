"""Keeps every competitor's process alive and asks them in turn.

Machines drift: clocks, caches and neighbours change within minutes. So all
competitors of a benchmark run in the same few minutes, in an order shuffled each
round, and what is reported is the median of the ratios within one round.
"""

import dataclasses
import importlib
import multiprocessing
import os
import random
import resource
import statistics
import time
import traceback


@dataclasses.dataclass(frozen=True)
class Competitor:
    """One way to do the work, in a process of its own.

    Args:
        name: str. What the table calls it.
        build: str. `"module:function"` in this package. The function is called
            once, in the competitor's process, and returns a callable that does
            `n` steps and returns their durations in seconds. If that has an attribute
            `memory`, a function, it says the peak in MB in place of the process's.
        arguments: dict. Keyword arguments of the function.
        backend: str. The Keras backend of the process.
    """

    name: str
    build: str
    arguments: dict = dataclasses.field(default_factory=dict)
    backend: str = "tensorflow"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Competitors at equal work; the first is the reference.

    Args:
        title: str. What is measured.
        competitors: sequence of `Competitor`.
        amount: float. How much is done in one step, in `unit`s; `None` for
            benchmarks that report the duration.
        unit: str. `"ms"`, or the unit of `amount`.
    """

    title: str
    competitors: tuple
    amount: float | None = None
    unit: str = "ms"


@dataclasses.dataclass
class Result:
    """What was measured of one competitor; `rounds` holds seconds per step."""

    name: str
    start: float
    rounds: list
    memory: float = 0.0


def repeated(function, clock=time.perf_counter):
    """Turn one step, a function without arguments, into what `build` returns.

    Args:
        function: callable.
        clock: callable. `time.process_time` for seconds of all cores together.
    """

    def timed():
        start = clock()
        function()
        return clock() - start

    def run(steps):
        timed()  # the others have had the caches
        return [timed() for _ in range(steps)]

    return run


def measure(benchmark, rounds, steps, report=lambda message: None):
    """Run the competitors alternately.

    Args:
        benchmark: a `Benchmark`.
        rounds: int. How often each competitor is asked.
        steps: int. Steps per round, after one that warms up at the start.
        report: callable. Receives a line of progress now and then.

    Returns:
        A list of `Result`, in the order of the competitors.

    Raises:
        RuntimeError: if a competitor fails, with its traceback.
    """
    workers = []
    try:
        for competitor in benchmark.competitors:
            workers.append(_Worker(competitor))
            report(f"{competitor.name}: ready after {workers[-1].result.start:.0f} s")
        for number in range(rounds):
            order = random.Random(number).sample(workers, len(workers))
            for worker in order:
                worker.run(steps)
            report(f"round {number + 1} of {rounds}")
        for worker in workers:
            worker.result.memory = worker.ask(0)
    finally:
        for worker in workers:
            worker.stop()
    return [worker.result for worker in workers]


def table(benchmark, results):
    """Format results as a Markdown table."""
    unit = benchmark.unit if benchmark.amount is None else f"{benchmark.unit}/s"
    reference = results[0]
    lines = [
        f"### {benchmark.title}",
        "",
        f"| | {unit} | speed | range | start, s | peak MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        seconds = statistics.median(
            duration for one_round in result.rounds for duration in one_round
        )
        value = (
            seconds * 1e3 if benchmark.amount is None else benchmark.amount / seconds
        )
        ratios = [
            statistics.median(theirs) / statistics.median(own)
            for theirs, own in zip(reference.rounds, result.rounds, strict=True)
        ]
        lines.append(
            f"| {result.name} | {_rounded(value)} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f}–{max(ratios):.2f} "
            f"| {result.start:.0f} | {result.memory:.0f} |"
        )
    return "\n".join(lines)


def _rounded(value):
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


class _Worker:
    """The driver's end of a competitor's process."""

    def __init__(self, competitor):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, competitor))
        start = time.perf_counter()
        self._process.start()
        theirs.close()  # so that a dead process is an end of file here
        self.result = Result(competitor.name, start=0.0, rounds=[])
        try:
            self._receive()
        except RuntimeError:
            self.stop()
            raise
        self.result.start = time.perf_counter() - start

    def run(self, steps):
        self.result.rounds.append(self.ask(steps))

    def ask(self, steps):
        self._connection.send(steps)
        return self._receive()

    def stop(self):
        self._connection.close()
        self._process.join(timeout=20)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self):
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            answer = f"the process ended with code {self._process.exitcode}"
        if isinstance(answer, str):
            raise RuntimeError(f"{self.result.name}: {answer}")
        return answer


def _resident():
    """Give the most MB that this process or one of its own had."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in whose) / 1024


def _serve(connection, competitor):
    """Build the competitor, warm it up, then answer until the driver hangs up."""
    os.environ["KERAS_BACKEND"] = competitor.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        module, function = competitor.build.split(":")
        build = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        run = build(**competitor.arguments)
        run(1)
        connection.send(None)
        while True:
            if steps := connection.recv():
                connection.send(run(steps))
            else:
                connection.send(getattr(run, "memory", _resident)())
    except EOFError:
        pass
    except Exception:
        connection.send(traceback.format_exc())
