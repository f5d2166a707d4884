"""The real client of the Hugging Face hub uploads to a server that answers as the hub.

It runs in this process: the client looks up the hub's address at each call.
"""

import base64
import hashlib
import http.server
import json
import threading

import kagglehub
import pytest
import yaml

from keras_bertfam.presets import CheckpointError, cards, upload_preset
from keras_bertfam.tasks import MaskedLM

constants = pytest.importorskip("huggingface_hub.constants")


class Hub(http.server.BaseHTTPRequestHandler):
    """Takes commits of `org/model` into the dict `files`."""

    def answer(self, content, status=200, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {**dict(headers), "Content-Length": len(body)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        name = self.path.partition("/resolve/main/")[2]
        content = self.files.get(name)
        if content is None:
            return self.answer(b"", 404, {"X-Error-Code": "EntryNotFound"})
        tag = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": tag[:40]}
        return self.answer(content, headers=headers)

    do_GET = do_HEAD

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        if self.path == "/api/repos/create":
            self.answer({"url": f"{self.address}/org/model"})
        elif self.path == "/api/validate-yaml":
            text = json.loads(body)["content"]
            self.validated.append(yaml.safe_load(text.partition("\n---\n")[0]))
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            sent = json.loads(body)["files"]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer({"files": [{"path": file["path"], **modes} for file in sent]})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[line["value"]["path"]] = content
            url = f"{self.address}/org/model/commit/{'1' * 40}"
            self.answer({"commitUrl": url, "commitOid": "1" * 40})

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    handler = type("Handler", (Hub,), {"files": {}, "asked": [], "validated": []})
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        handler.address = f"http://localhost:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "ENDPOINT": handler.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": handler.address
            + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "hf_x")
        yield handler
        server.shutdown()


def test_what_is_uploaded_is_the_folder(hub, preset):
    def local():
        paths = (path for path in preset.rglob("*") if path.is_file())
        return {p.relative_to(preset).as_posix(): p.read_bytes() for p in paths}

    sent = local()
    upload_preset("hf://org/model", preset)
    assert hub.asked[0] == "/api/repos/create"
    assert hub.files == sent == local()
    assert "model.weights.h5" in sent
    assert hub.validated[0]["pipeline_tag"] == "fill-mask"
    assert hub.files["README.md"].startswith(b"---\nlibrary_name: keras-hub\n")
    hub.files["README.md"] = b"the user's"
    upload_preset("hf://org/model", str(preset))
    assert hub.files == {**sent, "README.md": b"the user's"}
    (preset / "README.md").write_text("newer")
    upload_preset("hf://org/model", preset)
    assert hub.files["README.md"] == b"newer"
    hub.files["README.md"] = sent["README.md"]
    MaskedLM.from_preset(preset).save_to_preset(preset, card={"license": "mit"})
    assert (preset / "README.md").read_text() == "newer"
    (preset / "README.md").unlink()
    MaskedLM.from_preset(preset).save_to_preset(preset, card={"license": "mit"})
    upload_preset("hf://org/model", preset)
    assert b"license: mit" in hub.files["README.md"]
    assert cards.is_ours(preset / "README.md")


def test_kaggles_client_gets_the_folder(preset, monkeypatch):
    sent = []
    monkeypatch.setattr(kagglehub, "model_upload", lambda *args: sent.append(args))
    upload_preset("kaggle://org/model/keras/tiny", preset)
    assert sent == [("org/model/keras/tiny", str(preset))]
    assert cards.is_ours(preset / "README.md")


def test_what_cannot_be_uploaded(hub, preset, tmp_path):
    for uri in ("org/model", "hf://", "s3://org/model"):
        with pytest.raises(ValueError, match=r"`uri` must be hf://.*Received: '"):
            upload_preset(uri, preset)
    with pytest.raises(ValueError, match="`preset` must be .*none_there"):
        upload_preset("hf://org/model", tmp_path / "none_there")
    with pytest.raises(ValueError, match="org/model/more"):
        upload_preset("hf://org/model/more", preset)
    (preset / "key").symlink_to(tmp_path)
    with pytest.raises(CheckpointError, match="key"):
        upload_preset("hf://org/model", preset)
    (preset / "key").unlink()
    (preset / "model.weights.h5").unlink()
    with pytest.raises(CheckpointError, match="model.weights.h5"):
        upload_preset("hf://org/model", preset)
    assert not hub.files
