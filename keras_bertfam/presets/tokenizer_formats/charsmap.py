"""Turns the character table of a SentencePiece model into steps of `tokenizers`.

The table leads from texts to their replacements. From left to right, SentencePiece
replaces the longest text that it finds. The step `Precompiled` of `tokenizers` reads
such a table, too, but works differently: it looks at clusters of characters of less
than six bytes, replaces the shortest text in a cluster and drops the rest. So it
doesn't compose Hangul's letters to syllables, and it loses marks.

Tables of SentencePiece do the work of NFKC, so the step `NFKC` comes before
`Precompiled`. NFKC would change more than the table, for example reorder marks. A
control character between two characters prevents that, and the table deletes it
afterwards.
"""

import base64
import functools
import unicodedata
from collections import defaultdict
from typing import Any

import numpy as np

Step = dict[str, Any]

# Keeps two characters apart. Tables of SentencePiece delete it.
_APART = "\x01"
# NFKC changes no character from here on.
_END = 0x30000
# Characters of a private plane, for those that NFKC changes and the table doesn't.
_FIRST_STAND_IN = 0x10FF00
_MOST_STAND_INS = 0xF0
# Japanese half-width marks, which NFKC turns into marks.
_HALF_MARKS = "\uff9e\uff9f"


@functools.lru_cache(maxsize=4)
def rules(table: bytes) -> dict[str, str]:
    """Read the texts in a `precompiled_charsmap`, and their replacements.

    Args:
        table: bytes: the size of a trie, the trie, and texts that end with zero bytes.
            The trie is a double array of `darts-clone`.

    Returns:
        Dict from texts to replacements.

    Raises:
        ValueError: for other bytes.
    """
    size = int.from_bytes(table[:4], "little")
    if size % 4 or not 0 < size < len(table) - 4:
        raise ValueError("The charsmap's trie must be smaller than the charsmap.")
    units = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    texts = table[4 + size :]
    offsets = (units >> 10) << ((units & 512) >> 6)
    labels = units & 0x800000FF
    bases = np.arange(len(units)) ^ offsets
    # Find all children of each unit at once.
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
            raise ValueError("The charsmap's trie must have no cycle.")
        pending += [(place, text + bytes([b])) for b, place in children[unit]]
    return known


@functools.lru_cache(maxsize=4)
def steps(table: bytes) -> list[Step] | None:
    """Make steps of a normalizer that change texts as a table does.

    Args:
        table: bytes, a `precompiled_charsmap`.

    Returns:
        List of dicts. `None` for a table that differs from NFKC in more than single
        characters, such as one that lower-cases.
    """
    known = rules(table)
    changed = _nfkc([chr(k) for k in range(_END) if not 0xD800 <= k < 0xE000])
    longer = {text: to for text, to in known.items() if len(text) > 1}
    composed = _nfkc([*longer])
    # `tokenizers` doesn't know the newest characters. They are replaced first.
    lacking = [text for text in longer if composed.get(text, text) != longer[text]]
    newer = {t[0]: known[t[0]] for t in lacking if t[0] in known}
    newer |= {t: longer[t] for t in lacking if t[0] not in known}
    longer = {
        newer.get(t[0], t[0]) + t[1:]: longer[t] for t in longer if t not in newer
    }
    composed = _nfkc([*longer])
    if known.get(_APART) != "" or any(composed.get(t, t) != longer[t] for t in longer):
        return None
    # Single characters that NFKC changes in another way than the table.
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
    """Make a step that replaces a string, or the matches of a pattern (`"Regex"`)."""
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
    """Make a pattern of the places where `_APART` stops NFKC from reordering marks.

    A place lies behind a character and the marks that the table composes with it. If
    the table composes none of them, it lies behind the character alone.
    """
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

    NFKC would compose the two. The table composes single letters only.
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
    """Write characters as ranges for the brackets of a pattern."""
    codes = sorted(map(ord, characters))
    begins = [k for k in codes if k - 1 not in codes]
    ends = [k for k in codes if k + 1 not in codes]
    pairs = zip(begins, ends, strict=True)
    return "".join(
        rf"\x{{{a:x}}}" if a == b else rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in pairs
    )
