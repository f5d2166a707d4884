"""The steps of preparing a corpus as a pipeline of Apache Beam, and its progress."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_bertfam.corpora.preparing import steps
from keras_bertfam.corpora.preparing.job import Job, guarded


def load_beam() -> Any:
    """Import Apache Beam.

    Raises:
        ImportError: if it isn't installed; the message says how to install it.
    """
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            "Corpora are prepared by Apache Beam: pip install keras-bertfam[beam]."
        ) from error
    return apache_beam


def beam_options(workers: int, arguments: Sequence[str] = ()) -> Any:
    """Choose a pipeline's options: processes of this machine, unless given otherwise.

    Args:
        workers: int. Number of processes.
        arguments: options of Beam as on its command line, such as
            `["--runner=FlinkRunner", "--flink_master=host:8081"]`.

    Returns:
        A `PipelineOptions`.

    Raises:
        ValueError: for `workers` beside a runner, or less than one.
    """
    load_beam()
    from apache_beam.options.pipeline_options import PipelineOptions

    if workers < 1:
        raise ValueError(f"`workers` must be at least 1. Received: {workers}.")
    given = [*arguments]
    if any(argument.partition("=")[0] == "--runner" for argument in given):
        if workers != 1:
            raise ValueError(
                "`workers` must be left out with a `--runner`, which has options of "
                f"its own. Received: {workers}."
            )
        return PipelineOptions(given)
    # `DirectRunner` becomes this runner, but first looks for a program of another
    # language to download. Its threads wait for processes, so there are two for each.
    local = ["--runner=FnApiRunner"]
    if workers > 1:
        threads = f"--direct_num_workers={2 * workers}"
        local += [threads, "--direct_running_mode=multi_threading"]
    return PipelineOptions([*local, *given])


def run_pipeline(job: Job, blocks: int, options: Any) -> None:
    """Run all steps.

    Args:
        job: `Job`.
        blocks: int. Number of blocks.
        options: `PipelineOptions`.
    """
    beam = load_beam()

    def step(function: Callable[..., Any]) -> Any:
        return functools.partial(guarded, job, function)

    with beam.Pipeline(options=options) as pipeline:
        documents = (
            pipeline
            | "Blocks" >> beam.Create(range(blocks))
            | "Spread" >> beam.Reshuffle()
            | "Documents" >> beam.Map(step(steps.write_documents))
        )
        dropped = (
            documents
            | "Index" >> beam.FlatMap(step(steps.index_rows))
            | "Alike" >> beam.GroupByKey()
            | "Copies" >> beam.FlatMap(step(steps.find_dropped))
        )
        joined = {
            "block": documents | "Numbered" >> beam.Map(_numbered),
            "dropped": dropped,
        }
        tokens = (
            joined
            | "Join" >> beam.CoGroupByKey()
            | "Tokens" >> beam.Map(step(steps.write_tokens))
        )
        (
            tokens
            | "Together" >> beam.Map(_together)
            | "All" >> beam.GroupByKey()
            | "Plan" >> beam.FlatMap(step(steps.write_plan))
            | "Shards" >> beam.Reshuffle()
            | "Write" >> beam.Map(step(steps.write_shard_of))
        )


def _numbered(number):
    return number, None


def _together(element):
    return 0, element


_SECONDS = 5.0


@contextlib.contextmanager
def progress(
    folders: Callable[[], dict[str, tuple[str, int]]],
    report: Callable[[str], Any],
    seconds: float = _SECONDS,
) -> Iterator[None]:
    """Report every few seconds how many results are in folders, if that has changed.

    Args:
        folders: function without arguments. It returns a dict from the name of the
            results to a tuple of their folder and their final number.
        report: function that takes a line of text.
        seconds: float. Time between two lines.
    """
    done = threading.Event()
    start = time.monotonic()
    reported: list[str] = []

    def report_change():
        parts = [
            f"{what} {_count(folder)} of {total}"
            for what, (folder, total) in folders().items()
        ]
        line = ", ".join(parts)
        if [line] != reported[-1:]:
            reported.append(line)
            report(f"{time.monotonic() - start:6.0f} s: {line}")

    def watch():
        while not done.wait(seconds):
            report_change()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
        done.set()
        thread.join()
        report_change()
    finally:
        done.set()
        thread.join()


def _count(folder):
    """Count the complete results in a folder."""
    with contextlib.suppress(FileNotFoundError):
        return sum(not name.startswith(".") for name in os.listdir(folder))
    return 0
