"""What the preprocessors share whose rows can be packed before `dataset`."""

from keras_bertfam.layers.data.rows import BatchOptions
from keras_bertfam.tasks.pretraining.text_preprocessor import TextPreprocessor
from keras_bertfam.types import TFDataset


class PackingPreprocessor(TextPreprocessor):
    """Base of the text preprocessors that can pack documents once for all passes."""

    def pack(
        self,
        documents: TFDataset,
        packing: str | None = None,
        break_lines: bool = True,
    ) -> TFDataset:
        """Does what is the same in all passes: tokenises documents, packs blocks.

        `dataset` takes the result in place of documents, so that it can be
        cached: `preprocessor.pack(documents).cache()`.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            packing: `"full"` (FULL-SENTENCES) or `"doc"` (DOC-SENTENCES); for
                segment pairs, `"segments"` (RoBERTa's SEGMENT-PAIR) or
                `"sentences"` (SENTENCE-PAIR), which is given to `dataset`, too; for
                ELECTRA `"segments"`, `"full"` or `"doc"`.
                `None` is the preprocessor's default.
            break_lines: bool. Whether to break lines into sentences.

        Returns:
            A `tf.data.Dataset` of dicts of tensors.
        """
        options = BatchOptions(packing=packing, break_lines=break_lines)
        rows, _ = self.parts()
        return rows.prepare(documents, options)
