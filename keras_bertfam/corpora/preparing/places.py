"""Where a prepared corpus goes, checked before there is work to lose."""

import os


def check_output(output: str) -> None:
    """Raise a `ValueError` for what isn't a new or an empty folder."""
    if os.path.lexists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise ValueError(
            "`output` must be a folder that is new or empty: a prepared corpus isn't "
            f"written over. Received: {output!r}."
        )
