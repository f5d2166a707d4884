"""The real client of the Hugging Face hub, beside a server that answers as the hub."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.checkout import ROOT
from tests.tiny_preset import make

CLIENT = """
import json
import keras
from keras_bertfam.tasks import MaskedLM

rows = []
for name in ("ours", "theirs"):
    model = MaskedLM.from_preset(f"hf://org/{name}")
    inputs = model.preprocessor.encode(["a [MASK] b"])
    rows.append(keras.ops.convert_to_numpy(model.backbone(inputs)["sequence_output"]))
try:
    MaskedLM.from_preset("hf://org/none")
except ConnectionError as error:
    print(json.dumps([*(row.tolist() for row in rows), str(error)]))
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers `/organisation/model/resolve/main/file` from the folder `root`."""

    def do_HEAD(self):
        repository, _, name = self.path.strip("/").partition("/resolve/main/")
        path = self.root / repository / name
        content = path.read_bytes() if path.is_file() else b""
        if path.is_file():
            headers = {
                "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                "X-Repo-Commit": "0" * 40,
            }
        else:
            known = (self.root / repository).is_dir()
            headers = {"X-Error-Code": "EntryNotFound" if known else "RepoNotFound"}
        self.send_response(200 if path.is_file() else 404)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        return content

    def do_GET(self):
        self.wfile.write(self.do_HEAD())

    def log_message(self, *args):
        pass


@pytest.mark.slow
def test_downloads(tmp_path):
    model = make(num_layers=2)
    root = tmp_path / "hub"
    model.save_to_preset(str(root / "org" / "ours"))
    model.export_to_transformers(str(root / "org" / "theirs"))
    handler = type("Handler", (Hub,), {"root": root})
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [sys.executable, "-c", CLIENT],
            cwd=ROOT,
            env={
                **os.environ,
                "HF_ENDPOINT": f"http://localhost:{server.server_port}",
                "HF_HOME": str(tmp_path / "cache"),
                "HF_HUB_OFFLINE": "0",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    ours, theirs, error = json.loads(done.stdout.splitlines()[-1])
    inputs = model.preprocessor.encode(["a [MASK] b"])
    expected = np.asarray(model.backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    np.testing.assert_allclose(theirs, expected, atol=1e-6)
    assert "hf://org/none (RepositoryNotFoundError" in error
