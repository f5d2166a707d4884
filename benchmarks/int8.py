"""`python -m benchmarks.int8 TASK`: exports for ONNX in float32 and in 8 bits.

Their sizes, how fast ONNX Runtime answers rows of 128 tokens, and their scores on the
development part of the task. Float and 8 bits take turns. Needs the folder of real data
(`BERTFAM_DATA`).
"""

import os
import statistics
import tempfile
import time
from typing import Annotated

import numpy as np
import typer

from benchmarks.quality import load, trained_weights
from keras_bertfam import metrics, tasks
from keras_bertfam.export import Int8Settings
from keras_bertfam.tasks.finetuning.text_embedder import cosine

SHAPES = (1, 128), (32, 128)
CALIBRATION = 128
TASKS = {"sst2": tasks.TextClassifier, "stsb_embedding": tasks.TextEmbedder}


def sides(texts):
    """Name what is compared; the first is the reference."""
    return {
        "float32": None,
        "int8": "int8",
        "int8, one scale for a weight": Int8Settings(per_channel=False),
        "int8, 7 bits": Int8Settings(reduce_range=True),
        "int8, float tables": Int8Settings(leave_out=["token_embedding"]),
        "int8, 2 left out": Int8Settings(texts, leave_out=2),
        "int8, static": Int8Settings(texts, static=True),
        "int8, static, 2 left out": Int8Settings(texts, static=True, leave_out=2),
    }


def answers(session, preprocessor, texts):
    """Let a file answer texts; the answers are in their order."""
    batches, places = preprocessor.inputs(texts, 32)
    names = [one.name for one in session.get_inputs()]
    rows = [
        session.run(None, {name: np.asarray(batch[name]) for name in names})[0]
        for batch in batches
    ]
    return np.concatenate(rows)[places]


def score(session, preprocessor, test):
    """Score the answers of a file, from 0 to 100."""
    if isinstance(test.x, tuple):
        vectors = [answers(session, preprocessor, list(part)) for part in test.x]
        predicted = np.asarray(cosine(*vectors))
    else:
        predicted = answers(session, preprocessor, list(test.x)).argmax(-1)
    scores = metrics.compute_metrics(test.task.metrics, test.y, predicted)
    return 100 * next(iter(scores.values()))


def seconds(session, shape):
    """Measure how long an answer takes."""
    rng = np.random.default_rng(0)
    rows = {
        "token_ids": rng.integers(1000, 20_000, shape).astype("int32"),
        "padding_mask": np.ones(shape, bool),
        "segment_ids": np.zeros(shape, "int32"),
    }
    start = time.perf_counter()
    for _ in range(max(1, 8 // shape[0])):
        session.run(None, rows)
    return (time.perf_counter() - start) / max(1, 8 // shape[0])


def main(
    task: Annotated[str, typer.Argument(help=f"Of {', '.join(TASKS)}.")],
    preset: Annotated[str | None, typer.Option(help="MiniLM by default.")] = None,
    rounds: Annotated[int, typer.Option(help="In which all take turns.")] = 9,
):
    """Print a row of a Markdown table for each side."""
    import onnxruntime

    model = TASKS[task].from_preset(preset or trained_weights())
    train, test = load(task)
    texts = train.x[0] if isinstance(train.x, tuple) else train.x
    sessions, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, quantize in sides(list(texts[-CALIBRATION:])).items():
            path = os.path.join(folder, "model.onnx")
            model.export(path, "onnx", verbose=False, quantize=quantize)
            sizes[name] = os.path.getsize(path) / 1e6
            sessions[name] = onnxruntime.InferenceSession(path)
    times = {name: {shape: [] for shape in SHAPES} for name in sessions}
    for shape in SHAPES:
        for _ in range(rounds):
            for name, session in sessions.items():
                times[name][shape].append(seconds(session, shape))
    heads = [f"{rows} x {length}, ms | speed" for rows, length in SHAPES]
    print(f"| {task} | MB | {' | '.join(heads)} | score |\n|---|{'---:|' * 6}")
    reference = next(iter(times.values()))
    for name, session in sessions.items():
        cells = []
        for shape in SHAPES:
            taken = times[name][shape]
            pairs = zip(reference[shape], taken, strict=True)
            ratio = statistics.median(one / other for one, other in pairs)
            cells.append(f"{1000 * statistics.median(taken):.1f} | {ratio:.2f}")
        points = score(session, model.preprocessor, test)
        print(f"| {name} | {sizes[name]:.0f} | {' | '.join(cells)} | {points:.2f} |")


if __name__ == "__main__":
    typer.run(main)
