"""Share code among tasks that make vectors of texts for retrieval."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bertfam.arguments import check_number, check_several, checked
from keras_bertfam.corpora.manifest import tokenizer_digest
from keras_bertfam.layers.data.pairs.segments import get_layout
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.retrieval.passages import text_or_titled
from keras_bertfam.types import Config, Mixin

# Names of prompts for passages, in the order of sentence-transformers.
PASSAGE_PROMPTS = ("document", "passage", "corpus")
# Parts of a config on which no vector depends, or that the backbone's config has, too.
_UNRELATED = ("name", "trainable", "dtype", "token_embedding")


def check_exported_layout(preprocessor: Any) -> None:
    """Raise a `ValueError` if `transformers` would put other special tokens into rows.

    Args:
        preprocessor: of texts, or `None`.
    """
    if preprocessor is None:
        return  # which the export refuses
    usual = get_layout(None, preprocessor.tokenizer).name
    bare = usual in sentence_transformers.WITHOUT_SPECIALS
    theirs = sentence_transformers.BARE if bare else usual
    if (preprocessor.layout or usual) != theirs:
        raise ValueError(
            f"`layout` of the preprocessor must be {theirs!r} in a folder of "
            "sentence-transformers, where the tokenizer puts special tokens into rows. "
            f"Received: {preprocessor.layout!r}."
        )


class TextVectors(Mixin):
    """Mixin of tasks that make vectors of texts.

    Attributes:
        cuts_queries: whether queries that are too long are cut by default.
    """

    cuts_queries = False

    @checked
    def encode(
        self,
        texts: Sequence[Any],
        kind: str = "query",
        batch_size: int = 32,
        too_long: str | None = None,
    ) -> Any:
        """Compute vectors of texts.

        Args:
            texts: list of strings; passages may be tuples of title and text.
            kind: `"query"` or `"passage"`.
            batch_size: int.
            too_long: `"error"` or `"cut"`: refuse or cut texts that don't fit into a
                row. `None` cuts passages and refuses queries. A `LateInteraction`,
                whose queries are short by design, cuts queries with a warning.

        Returns:
            float32 array of shape `(len(texts), width)`, in the order of the texts. A
            `LateInteraction` gives a list of arrays `(tokens, width)`: a vector for
            each token that is compared.

        Raises:
            ValueError: for an unknown value of an argument, or a text that is too long.

        Example:

        ```python
        model = keras_bertfam.tasks.DualEncoder.from_preset("my_bert")
        questions = model.encode(["Who wrote Emma?"])
        passages = model.encode([("Emma", "A novel by Jane Austen.")], "passage")
        print(questions @ passages.T)
        ```
        """
        if kind not in ("query", "passage"):
            raise ValueError(
                f'`kind` must be "query" or "passage". Received: {kind!r}.'
            )
        if too_long not in (None, "error", "cut"):
            raise ValueError(
                f'`too_long` must be "error", "cut" or `None`. Received: {too_long!r}.'
            )
        if self.preprocessor is None:
            raise ValueError("`encode` needs a task with a preprocessor.")
        if too_long is None:
            refused = kind == "query" and not self.cuts_queries
            too_long = "error" if refused else "cut"
        check_several("texts", texts, "texts")
        check_number("batch_size", batch_size, 1)
        texts = [text_or_titled(x, f"in row {row}") for row, x in enumerate(texts)]
        if any(isinstance(text, tuple) for text in texts):
            texts = [text if isinstance(text, tuple) else ("", text) for text in texts]
        return self._encode(texts, kind, batch_size, too_long)

    def passage_sample(self) -> list[Any]:
        """Take the settings that vectors of passages depend on, and sums of weights.

        Training changes it. It takes much less time than `passage_digest`.

        Returns:
            List of a dict and of a digest of the sums of all rows of all weights.
        """
        models, settings = self._passage_settings()
        weights = [weight for model in models for weight in model.weights]
        # Training may leave most rows of a table as they are, so all are read.
        sums = [keras.ops.sum(keras.ops.cast(w, "float32"), axis=-1) for w in weights]
        sums = keras.ops.concatenate([keras.ops.reshape(x, (-1,)) for x in sums])
        digest = hashlib.sha256(keras.ops.convert_to_numpy(sums).tobytes())
        return [settings, digest.hexdigest()]

    def _passage_settings(self):
        """Give what `_passage_parts` does, with the settings of rows."""
        models, settings = self._passage_parts()
        preprocessor = self.preprocessor
        if preprocessor is not None:
            settings["sequence_length"] = preprocessor.sequence_length
            truncate = getattr(preprocessor, "truncate", "end")
            if truncate != "end":  # not in digests of earlier versions
                settings["truncate"] = truncate
            layout = getattr(preprocessor, "layout", None)
            if layout not in (None, get_layout(None, preprocessor.tokenizer).name):
                settings["layout"] = layout
        return models, settings

    def passage_digest(self) -> str:
        """Make a digest of everything that the vectors of passages depend on.

        An index stores it, and so recognises whether an encoder still is the one that
        made its vectors.

        Returns:
            Str, the hexadecimal SHA-256 of configs, weights, tokenizer and row length.
            A task that was saved and loaded has the same digest.
        """
        models, settings = self._passage_settings()
        if self.preprocessor is not None:
            settings["tokenizer"] = tokenizer_digest(self.preprocessor.tokenizer)
        configs: list[Config] = [settings]
        for model in models:
            config = model.get_config()
            configs.append({k: v for k, v in config.items() if k not in _UNRELATED})
        text = json.dumps(configs, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode())
        for weight in (weight for model in models for weight in model.weights):
            value = keras.ops.convert_to_numpy(weight)
            digest.update(f"{value.shape}".encode())
            digest.update(np.ascontiguousarray(value, "float32").tobytes())
        return digest.hexdigest()
