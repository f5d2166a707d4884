"""The encoder that an index's vectors are of, as the index remembers it."""

from typing import Any


class Origin:
    """An encoder as it was when it made the vectors of an index.

    Args:
        encoder: a task with `encode`, or `None`.

    Attributes:
        digest: string, of all that its vectors depend on; `None` without an encoder.
    """

    def __init__(self, encoder: Any = None) -> None:
        self.digest = _told_by(encoder, "passage_digest")
        self._sample = _told_by(encoder, "passage_sample")  # when it was last checked

    def check(self, encoder: Any, name: str = "The index") -> None:
        """Raise a `ValueError` unless an encoder would make these vectors today.

        Args:
            encoder: a task with `encode`.
            name: of the index, for the error.
        """
        digest = _told_by(encoder, "passage_digest")
        if digest != self.digest:
            raise ValueError(
                f"{name} must be of this encoder, as it is now: an encoder that was "
                "trained since, or has other rows, needs a new index. Expected: "
                f"{self.digest}. Received: {digest}."
            )
        self._sample = _told_by(encoder, "passage_sample")

    def check_fresh(self, encoder: Any) -> None:
        """Check an encoder, if it may have changed since the last time.

        Args:
            encoder: the one that was checked, or made the vectors.
        """
        if _told_by(encoder, "passage_sample") != self._sample:
            self.check(encoder)


def check_encodes(encoder: Any) -> None:
    """Raise a `ValueError` unless an encoder makes vectors."""
    if not hasattr(encoder, "encode"):
        raise ValueError(
            "`encoder` must be a task with `encode`, such as a `DualEncoder`. "
            f"Received: {type(encoder).__name__}."
        )


def _told_by(encoder, name):
    return getattr(encoder, name)() if hasattr(encoder, name) else None
