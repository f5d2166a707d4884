"""Make pages of HTML that load nothing: a single file has everything."""

import base64
import hashlib
import html
import importlib.resources
import json
import string
from collections.abc import Sequence
from typing import Any

_PARTS = importlib.resources.files("keras_bertfam.analysis") / "parts"
_PAGE = string.Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width">
<title>$title</title>
$styles
</head>
<body>
$body
$data
$scripts
</body>
</html>
""")


def page(
    title: str,
    body: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    data: Any = None,
) -> str:
    """Make a page of HTML.

    Only the package's own scripts run in it, whatever texts it shows, and nothing is
    loaded: the page's policy names the digests of all files in `parts`.

    Args:
        title: str, any text.
        body: str, HTML.
        styles: names of files in `parts`.
        scripts: names of files in `parts`, which run in this order.
        data: data that scripts read as JSON from the element `data`, or `None`.

    Returns:
        str.
    """
    # A "<" in JSON must not end the element or begin a comment.
    text = "" if data is None else json.dumps(data).replace("<", "\\u003c")
    element = f'<script type="application/json" id="data">{text}</script>'
    return _PAGE.substitute(
        title=html.escape(title),
        body=body,
        policy=_policy(),
        data=element if text else "",
        styles="\n".join(f"<style>{_part(name)}</style>" for name in styles),
        scripts="\n".join(f"<script>{_part(name)}</script>" for name in scripts),
    )


def frame(page: str, title: str) -> str:
    """Make a frame for another page; the framed page can't access the other one.

    Args:
        page: str, the result of `page`.
        title: str, a name of the frame for those who can't see it.

    Returns:
        str, HTML of an `iframe`.
    """
    return (
        f'<iframe sandbox="allow-scripts" title="{html.escape(title)}" width="100%" '
        f'height="640" frameborder="0" srcdoc="{html.escape(page)}"></iframe>'
    )


def _part(name):
    return (_PARTS / name).read_text(encoding="utf-8")


def _policy():
    allowed = {"css": "", "js": ""}
    for name in sorted(part.name for part in _PARTS.iterdir()):
        digest = hashlib.sha256(_part(name).encode()).digest()
        kind = name.rpartition(".")[2]
        allowed[kind] += f" 'sha256-{base64.b64encode(digest).decode()}'"
    return (
        "default-src 'none'; img-src data:; "
        f"style-src{allowed['css']}; script-src{allowed['js']}"
    )
