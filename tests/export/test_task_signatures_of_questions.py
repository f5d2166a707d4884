import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.export import export_saved_model
from tests.tiny_questions import make_model, make_preprocessor, questions

# Imports nothing but TensorFlow, as a server does.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
x = {k: tf.constant(v) for k, v in json.loads(sys.argv[2]).items()}
answers = model.signatures["serving_default"](**x)
assert not {"keras_hub", "keras_bertfam"} & set(sys.modules)
print(json.dumps({k: v.numpy().tolist() for k, v in answers.items()},
                 default=bytes.decode))
"""


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="exported in a process of its own"
)
@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("threshold", [None, 0.0])
def test_same_answers_in_a_fresh_process(tmp_path, threshold):
    model = make_model(preprocessor=make_preprocessor(18), null_threshold=threshold)
    path = export_saved_model(model, str(tmp_path / "1"))
    x, _ = questions(6)
    x = {"question": [*x["question"], ""], "context": [*x["context"], ""]}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, path, json.dumps(x)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(__file__),
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout.splitlines()[-1])
    for number, answer in enumerate(model.predict(x, verbose=0)):
        assert served["answer"][number] == answer["text"]
        assert served["answer_start"][number] == answer["start"]
        assert served["answer_end"][number] == answer["end"]
        found = [a for a in answer["n_best"] if a["start"] >= 0]
        for k, other in enumerate(found):
            assert served["n_best_text"][number][k] == other["text"]
            score = served["n_best_score"][number][k]
            assert score == pytest.approx(other["score"], abs=1e-4)
    rows = model.preprocessor(x, None)
    names = ("token_ids", "segment_ids", "span_mask", "start_mask", "padding_mask")
    rows = {name: np.asarray(rows[name]) for name in names}
    expected = model(rows, training=False)
    del rows["padding_mask"]
    received = tf.saved_model.load(path).signatures["token_ids"](
        **{name: tf.constant(value) for name, value in rows.items()}
    )
    assert received.keys() == expected.keys()
    for name in ("scores", "no_answer"):
        np.testing.assert_allclose(received[name], expected[name], atol=1e-4)
