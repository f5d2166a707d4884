"""Answer searches over HTTP: python search_service.py FOLDER

`search_files.py PRESET FILES --index FOLDER --export` makes the folder. Run again, it
brings the index up to date, which is seen here at the next search. This process needs
TensorFlow, `tensorflow_text` and FAISS, and neither Keras nor this library.

    curl 'localhost:8000/?question=Who+purrs%3F&k=3'
"""

import argparse
import http.server
import json
import pathlib
import threading
import urllib.parse

import faiss
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's operations)


class Searcher:
    """Finds passages by the index and the encoder of a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        signatures = tf.saved_model.load(str(self.folder / "encoder")).signatures
        # An encoder with prompts has a signature that puts the query's first.
        self.encode = signatures.get("queries", signatures["serving_default"])
        self.read_at = None
        self.lock = threading.Lock()

    def changed_at(self):
        return (self.folder / "index" / "manifest.json").stat().st_mtime_ns

    def refresh(self):
        """Read the index if it is another than the one that was read."""
        while self.read_at != (changed_at := self.changed_at()):
            lines = (self.folder / "index" / "passages.jsonl").read_text("utf-8")
            passages = [json.loads(line) for line in lines.split("\n") if line]
            path = str(self.folder / "index" / "vectors.faiss")
            vectors = faiss.read_index(path)
            sources = json.loads((self.folder / "sources.json").read_text("utf-8"))
            self.passages, self.vectors, self.sources = passages, vectors, sources
            self.read_at = changed_at

    def find(self, question, k=3):
        """Give the best passages, a list of dicts."""
        with self.lock:
            try:
                self.refresh()
            except (OSError, RuntimeError, ValueError):  # it is being replaced
                if self.read_at is None:
                    raise
            passages, vectors, sources = self.passages, self.vectors, self.sources
        vector = self.encode(text=tf.constant([question]))["embeddings"].numpy()
        scores, ids = vectors.search(vector, min(k, len(passages)))
        return [
            {
                "score": float(score),
                "passage": passages[number],
                "file": sources.get(passages[number]),
            }
            for score, number in zip(scores[0], ids[0], strict=True)
            if number >= 0
        ]


def handler(searcher):
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10  # of who connects and asks nothing

        def do_GET(self):
            query = urllib.parse.urlparse(self.path).query
            asked = dict(urllib.parse.parse_qsl(query))
            try:
                question, k = asked["question"], int(asked.get("k", 3))
                if k < 1:
                    raise ValueError(k)
            except (KeyError, ValueError):
                self.send_error(400, "Expected: /?question=TEXT&k=NUMBER")
                return
            content = json.dumps(searcher.find(question, k)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="Of `search_files.py --index --export`.")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    searcher = Searcher(given.folder)
    searcher.find("a first one, which is slow")
    address = ("localhost", given.port)
    with http.server.ThreadingHTTPServer(address, handler(searcher)) as server:
        print(f"Listening at http://localhost:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
