"""What the preprocessors share whose rows can be packed before `dataset`."""

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.rows.rows import BatchOptions
from keras_bertfam.tasks.pretraining.text_preprocessor import TextPreprocessor
from keras_bertfam.types import TFDataset


class PackingPreprocessor(TextPreprocessor):
    """Base of the text preprocessors that can pack documents once for all passes."""

    @as_written
    def pack(
        self,
        documents: TFDataset,
        packing: str | None = None,
        break_lines: bool = True,
    ) -> TFDataset:
        """Do what is the same in all passes: tokenise documents, pack blocks.

        `dataset` takes the result in place of documents, so that it can be
        cached: `preprocessor.pack(documents).cache()`.

        Args:
            documents: `tf.data.Dataset` of scalar strings.
            packing: `"full"` (FULL-SENTENCES), `"doc"` (DOC-SENTENCES), or
                `"best_fit"`: each element of `documents` is a sequence of its own, and
                rows hold as many as fit, told apart by `sequence_ids`; a longer one is
                cut into pieces, each a sequence. For ELECTRA, `"segments"` as well. For
                `DenoisingPreprocessor` and `CausalLMPreprocessor`, `"stream"` as well:
                documents one after the other, cut into full rows. For segment pairs,
                `"segments"` (RoBERTa's SEGMENT-PAIR) or `"sentences"` (SENTENCE-PAIR),
                one to a row, or `"best_fit"` or `"best_fit_sentences"`, the same with
                several to a row; it is given to `dataset`, too. `None` is the
                preprocessor's default.
            break_lines: bool. Whether to break lines into sentences; where texts are
                the sequences of `"best_fit"`, which aren't broken, it has to be `True`.

        Returns:
            A `tf.data.Dataset` of dicts of tensors.
        """
        options = BatchOptions(packing=packing, break_lines=break_lines)
        rows, _ = self.parts()
        return rows.prepare(documents, options)
