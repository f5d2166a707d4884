"""What a SentencePiece model does to characters, as steps of the `tokenizers` library.

The model has a table of texts and what they become, and replaces the longest text that
it finds, from left to right. `tokenizers` reads such a table (`Precompiled`), but looks
at clusters of characters of less than six bytes, of which it takes the shortest text
and leaves out the rest: Hangul's letters stay apart, and marks are lost. So NFKC comes
before it, whose work the table does. What NFKC would do beyond that, as to put marks in
another order, it can't where a control character lies between, which the table leaves
out.
"""

import base64
import functools
import unicodedata
from collections import defaultdict
from typing import Any

import numpy as np

Step = dict[str, Any]

# Between characters that stay apart. Tables of SentencePiece leave it out.
_APART = "\x01"
# NFKC changes no character from here on.
_END = 0x30000
# For characters that NFKC changes and the table doesn't: of a private plane.
_FIRST_STAND_IN = 0x10FF00
_MOST_STAND_INS = 0xF0
# Japanese marks of half a width, which NFKC makes marks.
_HALF_MARKS = "\uff9e\uff9f"


@functools.lru_cache(maxsize=4)
def rules(table: bytes) -> dict[str, str]:
    """Read the texts of a `precompiled_charsmap`, and what they become.

    Args:
        table: bytes: the size of a trie, the trie, and texts that end with zero bytes.
            The trie is a double array as of `darts-clone`.

    Raises:
        ValueError: for other bytes.
    """
    size = int.from_bytes(table[:4], "little")
    if size % 4 or not 0 < size < len(table) - 4:
        raise ValueError("The charsmap's trie must lie within it.")
    units = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    texts = table[4 + size :]
    offsets = (units >> 10) << ((units & 512) >> 6)
    labels = units & 0x800000FF
    bases = np.arange(len(units)) ^ offsets
    # All children of each unit at once: of a place, those of its base.
    children: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for label in range(1, 256):
        places = bases ^ label
        there = np.flatnonzero(places < len(units))
        found = there[labels[places[there]] == label]
        for unit in found.tolist():
            children[unit].append((label, int(bases[unit] ^ label)))
    known: dict[str, str] = {}
    pending = [(0, b"")]
    while pending:
        unit, text = pending.pop()
        if text and units[unit] >> 8 & 1:
            begin = int(units[bases[unit]] & 0x7FFFFFFF)
            known[text.decode()] = texts[begin : texts.index(b"\0", begin)].decode()
        if len(text) > 64:
            raise ValueError("The charsmap's trie must not go in a circle.")
        pending += [(place, text + bytes([b])) for b, place in children[unit]]
    return known


@functools.lru_cache(maxsize=4)
def steps(table: bytes) -> list[Step] | None:
    """Make steps of a normalizer that do what a table does.

    Args:
        table: bytes, a `precompiled_charsmap`.

    Returns:
        List of dicts, or `None` for a table that isn't NFKC's but for single
        characters, as one that lower-cases.
    """
    known = rules(table)
    changed = _nfkc([chr(k) for k in range(_END) if not 0xD800 <= k < 0xE000])
    longer = {text: to for text, to in known.items() if len(text) > 1}
    composed = _nfkc([*longer])
    # Newer characters than those of `tokenizers`, alone or as they are, come first.
    lacking = [text for text in longer if composed.get(text, text) != longer[text]]
    newer = {t[0]: known[t[0]] for t in lacking if t[0] in known}
    newer |= {t: longer[t] for t in lacking if t[0] not in known}
    longer = {
        newer.get(t[0], t[0]) + t[1:]: longer[t] for t in longer if t not in newer
    }
    composed = _nfkc([*longer])
    if known.get(_APART) != "" or any(composed.get(t, t) != longer[t] for t in longer):
        return None
    # What NFKC makes of single characters, where the table says something else.
    others = [c for c, to in changed.items() if known.get(c, c) != to]
    if len(others) > _MOST_STAND_INS:
        return None
    stand_ins = {c: chr(_FIRST_STAND_IN + k) for k, c in enumerate(others)}
    return [
        *(replace(t, newer[t]) for t in sorted(newer, key=len, reverse=True)),
        replace(_boundaries(longer), _APART, "Regex"),
        replace(_syllables(changed), _APART, "Regex"),
        *(replace(c, stand_in) for c, stand_in in stand_ins.items()),
        {"type": "NFKC"},
        *(replace(stand_in, c) for c, stand_in in stand_ins.items()),
        {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(table).decode(),
        },
    ]


def replace(pattern: str, content: str, kind: str = "String") -> Step:
    """Make a step that replaces a string, or what a pattern (a `"Regex"`) finds."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _nfkc(texts):
    """Apply the NFKC of `tokenizers` to texts, and keep those that it changes."""
    from tokenizers import normalizers

    step, changed = normalizers.NFKC(), {}
    for begin in range(0, len(texts), 1 << 16):
        part = texts[begin : begin + (1 << 16)]
        made = step.normalize_str(_APART.join(part)).split(_APART)
        if len(made) != len(part):  # the separator itself was among them
            made = [step.normalize_str(text) for text in part]
        changed |= {t: m for t, m in zip(part, made, strict=True) if t != m}
    return changed


def _boundaries(longer):
    """Make a pattern of the places behind what marks follow, or composed texts."""
    groups: dict[str, set[str]] = defaultdict(set)
    for text in longer:
        if _is_mark(text[1]):
            groups[text[1:]].add(text[0])
    suffixes = sorted(groups, key=lambda suffix: (-len(suffix), suffix))
    known = [f"[{_ranges(groups[suffix])}]{_literal(suffix)}" for suffix in suffixes]
    one, mark = "(?m:.)", rf"[\p{{M}}{_literal(_HALF_MARKS)}]"
    return rf"(?={one}{mark})(?>{'|'.join([*known, one])})\K"


def _syllables(changed):
    """Make a pattern of the places between a syllable of Hangul and a last consonant.

    The table has the syllables of single letters only.
    """
    lasts = {chr(k) for k in range(0x11A8, 0x11C3)}
    lasts |= {c for c, to in changed.items() if to in lasts}
    opens = {chr(k) for k in range(0xAC00, 0xD7A4, 28)}
    opens |= {c for c, to in changed.items() if to[-1] in opens}
    return rf"[{_ranges(opens)}]\K(?=[{_ranges(lasts)}])"


def _is_mark(character):
    return unicodedata.category(character)[0] == "M" or character in _HALF_MARKS


def _literal(text):
    return "".join(rf"\x{{{ord(c):x}}}" for c in text)


def _ranges(characters):
    """Write characters as ranges between the brackets of a pattern."""
    codes = sorted(map(ord, characters))
    begins = [k for k in codes if k - 1 not in codes]
    ends = [k for k in codes if k + 1 not in codes]
    pairs = zip(begins, ends, strict=True)
    return "".join(
        rf"\x{{{a:x}}}" if a == b else rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in pairs
    )
