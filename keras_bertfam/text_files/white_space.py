"""What white space is: Unicode's property White_Space, written once."""

# Python's own, without U+001C to U+001F, which Unicode has not.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"


def between_brackets(characters: str) -> str:
    """Write characters for a class of RE2, whose own `\\s` is ASCII's.

    Args:
        characters: of the class.

    Returns:
        What stands between `[` and `]`.
    """
    return "".join(rf"\x{{{ord(character):x}}}" for character in characters)
