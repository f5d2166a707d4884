"""Draws the end of what a command printed as a picture of a terminal.

Usage: python -m keras_bertfam demo | tail -40 | python docs/demo_picture.py > demo.svg
"""

import html
import sys

LINE, SIZE = 18, 13


def draw(lines):
    """Draw lines of text as an SVG, in the fixed-width font of the browser."""
    height, width = LINE * (len(lines) + 2), 28 + 8 * max(map(len, lines))
    rows = "\n".join(
        f'<text x="14" y="{LINE * (number + 2)}" xml:space="preserve">'
        f"{html.escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="monospace" font-size="{SIZE}" fill="#d8dee9">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#20242c"/>\n'
        f"{rows}\n</svg>"
    )


if __name__ == "__main__":
    print(draw(sys.stdin.read().rstrip().splitlines()))
