"""Docstrings' `Call arguments:` as lists, which Google's style doesn't know."""

import re
import textwrap

import griffe

_SECTION = re.compile(r"^Call arguments:\n((?: {4}.*\n|\n)+)", re.MULTILINE)
_NAME = re.compile(r"^([\w*]+(?:, [\w*]+)*): ", re.MULTILINE)


class CallArguments(griffe.Extension):
    """Rewrites the sections of all docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring is not None:
            text = f"{obj.docstring.value}\n"
            obj.docstring.value = _SECTION.sub(_as_list, text).rstrip()


def _as_list(match):
    items = _NAME.sub(r"\n- **\1** – ", textwrap.dedent(match[1]))
    return f"**Call arguments:**\n\n{items.strip()}\n"
