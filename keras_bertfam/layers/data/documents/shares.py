"""Shares of corpora in a mixture: powers of their sizes."""

import dataclasses
import math
from collections.abc import Collection, Mapping

from keras_bertfam.arguments import check_number


def sampling_shares(
    sizes: Mapping[str, float], exponent: float = 1.0
) -> dict[str, float]:
    """Compute shares by a power of sizes, `q ∝ p ** exponent`.

    Args:
        sizes: dict from names to positive numbers, in any unit.
        exponent: float in [0, 1].

    Returns:
        A dict from names to shares, which sum up to 1.

    Example:

    ```python
    from keras_bertfam.layers.data.documents.shares import sampling_shares
    sampling_shares({"en": 1000, "de": 100, "is": 10}, 0.5)
    # {"en": 0.706, "de": 0.223, "is": 0.071}
    ```
    """
    most = max(sizes.values())  # powers of large numbers overflow
    powers = {name: (size / most) ** exponent for name, size in sizes.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


@dataclasses.dataclass(frozen=True)
class SamplingLaw:
    """The law by which corpora are mixed.

    Args:
        texts: dict from names of corpora to how much text each has.
        sizes: dict from the same names to the numbers that the shares follow from:
            `texts`, or other numbers.
        exponent: float in [0, 1].
    """

    texts: Mapping[str, float]
    sizes: Mapping[str, float]
    exponent: float = 1.0

    @property
    def repeats(self) -> dict[str, float]:
        """dict: how often a pass reads each corpus.

        A pass has as much text as all corpora together.
        """
        shares = sampling_shares(self.sizes, self.exponent)
        total = sum(self.texts.values())
        return {name: shares[name] * total / self.texts[name] for name in self.texts}

    def changed(
        self, exponent: float | None = None, names: Collection[str] | None = None
    ) -> "SamplingLaw":
        """Give the law with another exponent, or for some of the corpora only.

        Args:
            exponent: float in [0, 1], or `None` for this law's exponent.
            names: names of corpora, or `None` for all.

        Raises:
            ValueError: for an exponent out of its range, or an unknown name.
        """
        exponent = self.exponent if exponent is None else exponent
        check_number("exponent", exponent, 0.0, 1.0)
        names = [*self.texts] if names is None else names
        if isinstance(names, str) or not names or not {*names} <= {*self.texts}:
            raise ValueError(
                f"`names` must be one or more of {[*self.texts]}. Received: {names!r}."
            )
        texts, sizes = (
            {name: size for name, size in each.items() if name in names}
            for each in (self.texts, self.sizes)
        )
        return SamplingLaw(texts, sizes, exponent)
