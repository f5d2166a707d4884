"""Write texts with the help of retrieved passages: RAG."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone, side_of
from keras_bertfam.tasks.generation.defaults import (
    checked_generation,
    default_length,
    default_settings,
    generation_config,
    merged,
)
from keras_bertfam.tasks.generation.prompts import (
    as_answer,
    as_prompts,
    checked_start,
    padded_width,
    stop_ids,
    words_as_ids,
)
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.tasks.generation.text_to_text import TextToText
from keras_bertfam.tasks.generation.writing import TextWriter, write_texts
from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tasks.retrieval.marginals import sequence_marginal, token_marginal
from keras_bertfam.tasks.retrieval.passage_reader import TokensOfPassages, by_row, flat
from keras_bertfam.tasks.retrieval.passages_preprocessor import refusals_as_value_errors
from keras_bertfam.tasks.retrieval.retrieval_augmented_generator_preprocessor import (
    RetrievalAugmentedGeneratorPreprocessor,
)
from keras_bertfam.tasks.token_heads import language_model_head
from keras_bertfam.types import Config, Model, Tensor

DECODINGS = ("token", "thorough", "fast")


@keras.saving.register_keras_serializable("keras_bertfam")
class RetrievalAugmentedGenerator(TokensOfPassages):
    """Writes an answer from a question and passages retrieved for it, as RAG.

    Call `fit()` to train, and `generate()` to write answers.

    A question's vector finds passages in an index. An encoder reads each passage with
    the question. The decoder's predictions are summed over the passages, weighted by
    `p(z | x)`, the softmax of the vectors' inner products. The question encoder is
    trained with the generator. Passage encoder and index don't change: the passages'
    vectors are inputs.

    Args:
        backbone: `EncoderDecoderBackbone`, or a `TextToText`, whose backbone is used.
        preprocessor: `RetrievalAugmentedGeneratorPreprocessor`, or `None` for batches
            that already have passages.
        retriever: `keras_bertfam.tasks.DualEncoder`.
        marginalization: `"sequence"`, where one passage stands behind the whole text;
            or `"token"`, where each token may have another passage.
        generation: dict or `None`, see `TextToText`; `None` takes that of a
            `TextToText` given as `backbone`. There is one text for each question, found
            by a search; nothing is drawn.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: the backbone's, `encoder_token_ids` and
            `encoder_padding_mask` of shape `(batch, passages, length)`, a row for each
            passage; `decoder_token_ids` and `decoder_padding_mask`, `(batch,
            decoder_length)`; the question encoder's inputs, such as `query_token_ids`
            and `query_padding_mask`, `(batch, query_length)`; and `passage_vectors`,
            float `(batch, passages, dim)`.

    Returns:
        Dict of float32 tensors: `logits`, `(batch, passages, decoder_length,
        vocabulary_size)`, and `passage_scores`, `(batch, passages)`.
        `log_probabilities` combines the two.

    With both marginalisations the loss is the negative log-likelihood, divided by the
    number of target tokens. Apart from the loss, `compile()` without arguments sets up
    the training of the backbone's family. The index isn't saved with the task.

    Raises:
        ValueError: for a backbone without an encoder or a decoder, an unknown
            `marginalization`, or no `retriever`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["Jane Austen wrote Emma.", ("Paris", "It is in France.")]
    index = keras_bertfam.retrieval.Index.build(passages, retriever)
    preprocessor = keras_bertfam.tasks.RetrievalAugmentedGeneratorPreprocessor(
        tokenizer, sequence_length=64, num_passages=2)
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    backbone = keras_bertfam.models.T5Backbone(
        tokenizer.vocabulary_size(), num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    model = keras_bertfam.tasks.RetrievalAugmentedGenerator(
        backbone, preprocessor, retriever)
    questions, answers = ["Who wrote Emma?"], ["Jane Austen"]
    model.fit(preprocessor.dataset((questions, answers), batch_size=1))
    model.generate(questions, max_length=8, return_sources=True)
    ```

    Reference: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.
    """

    backbone_cls = EncoderDecoderBackbone
    preprocessor_cls = RetrievalAugmentedGeneratorPreprocessor
    trains_passages = False

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        retriever: Any = None,
        marginalization: str = "sequence",
        generation: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(backbone, TextToText):
            generation = backbone.generation if generation is None else generation
            backbone = backbone.backbone
        if not isinstance(backbone, EncoderDecoderBackbone):
            raise ValueError(
                "`backbone` must be a `TextToText` or an `EncoderDecoderBackbone`. "
                f"Received: {type(backbone).__name__}."
            )
        super().__init__(backbone, preprocessor, retriever, marginalization, **kwargs)
        self.generation = checked_generation(generation, backbone.vocabulary_size)
        for key, value in (("do_sample", False), ("num_return_sequences", 1)):
            if self.generation.get(key, value) != value:
                raise ValueError(
                    f"`generation` must have {key}={value}: each question gets one "
                    f"text, found by a search. Received: {key}={self.generation[key]}."
                )
        self.head = language_model_head(backbone)
        self._alone = types.SimpleNamespace(
            task=None
        )  # must not become a layer of this task
        self.built = True
        self.compile_by_default()

    @property
    def generator(self) -> TextToText:
        """`TextToText`: the generator without passages, with the same weights."""
        if self._alone.task is None:
            self._alone.task = TextToText(self.backbone)
        self._alone.task.run_eagerly = self.run_eagerly
        return self._alone.task

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        count = inputs["encoder_token_ids"].shape[1]
        labels = self.repeated_labels(inputs, count)
        rows = {f"encoder_{k}": flat(v) for k, v in side_of(inputs, "encoder").items()}
        rows |= {
            f"decoder_{name}": ops.repeat(value, count, axis=0)
            for name, value in side_of(inputs, "decoder").items()
        }
        outputs = self.backbone(rows, training=training)
        logits = self.predict_tokens(
            self.head, outputs["decoder_sequence_output"], labels=labels
        )
        return {
            "logits": by_row(logits, count),
            "passage_scores": self.passage_scores(inputs, training),
        }

    @checked
    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        decoding: str = "auto",
        num_beams: int | None = None,
        stop_token_ids: Any = "auto",
        start_token_ids: Sequence[int] | None = None,
        return_sources: bool = False,
        settings: GenerationSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """Write an answer to each question.

        Args:
            inputs: a question or a list of questions, also as bytes or a tensor; or a
                dict of arrays: the inputs of the call without the decoder's.
            max_length: int. The most tokens of a text, those it begins with included.
                Defaults to the value of the task's `generation`.
            decoding: `"token"`: one beam search with the probabilities over all
                passages. `"thorough"`: a beam search with each passage; then all texts
                found are scored with all passages. `"fast"`: the same, but a passage
                scores only the texts that its own search found. `"auto"` is `"token"`
                or `"thorough"`, depending on the marginalisation.
            num_beams: int. Beams of each search; 1 for greedy search. Defaults to the
                value of the task's `generation`, or else to 4.
            stop_token_ids: see `TextToText.generate`.
            start_token_ids: see `TextToText.generate`.
            return_sources: bool. Whether passages are returned, too.
            settings: `GenerationSettings`: rules for texts. Or a dict of some of its
                arguments, which replace those of the task's `generation`. `None` keeps
                those of `generation`. Each question gets one text without its score,
                and `num_beams` is this method's argument.

        Returns:
            A string, a list of strings, or a list of lists of ids, as from
            `TextToText.generate`. With `return_sources`, a tuple of that and, for each
            question, a list of pairs `(passage, probability)`, the likeliest first.
            `passage` is a text if the inputs were strings, and a number in the batch if
            they were arrays.

        Raises:
            ValueError: for an unknown `decoding`, strings without a preprocessor, or
                as `TextToText.generate`.
        """
        if decoding not in ("auto", *DECODINGS):
            raise ValueError(
                f"`decoding` must be one of {('auto', *DECODINGS)}. "
                f"Received: decoding={decoding!r}."
            )
        if num_beams is None:
            num_beams = self.generation.get("num_beams", 4)
        if decoding == "auto":
            decoding = "token" if self.marginalization == "token" else "thorough"
        if isinstance(settings, Mapping) and "num_beams" in settings:
            raise ValueError(
                "`num_beams` must be left out of the settings: it is an argument. "
                f"Received: {settings['num_beams']!r}."
            )
        settings = merged(settings, default_settings(self.generation))
        if settings.num_return_sequences > 1 or settings.return_scores:
            raise ValueError(
                "`settings` must ask for one text and no score. Received: "
                f"num_return_sequences={settings.num_return_sequences}, "
                f"return_scores={settings.return_scores}."
            )
        settings = words_as_ids(self, settings.replace(num_beams=num_beams))
        inputs = as_prompts(inputs)
        strings = not isinstance(inputs, dict)
        batch = self._batch_of(inputs) if strings else inputs
        batch = {name: np.asarray(value) for name, value in batch.items()}
        start = checked_start(self, start_token_ids)
        if max_length is None:
            max_length = default_length(self.generation, len(start))
        stop = stop_ids(self, stop_token_ids)
        if decoding == "token":
            rows = self._search_tokens(batch, start, max_length, stop, settings)
        else:
            rows = likeliest_texts(
                self, batch, start, max_length, stop, decoding == "fast", settings
            )
        written: Any = as_answer(
            self,
            [[(row, None)] for row in rows],
            stop,
            settings,
            False,
            strings,
            len(start),
            specials=True,
        )
        sources = self._sources(batch, strings) if return_sources else []
        if isinstance(inputs, str):
            written, sources = written[0], sources[:1] and sources[0]
        return (written, sources) if return_sources else written

    def _batch_of(self, questions):
        if self.preprocessor is None:
            raise ValueError(
                "`inputs` must be a dict of arrays for a task without a preprocessor. "
                "Received: strings."
            )
        single = isinstance(questions, str)
        with refusals_as_value_errors():
            return self.preprocessor.generate_preprocess(
                [questions] if single else list(questions)
            )

    def _search_tokens(self, batch, start, max_length, stop, settings):
        """Search with the probabilities over all passages; give lists of ids."""
        rows = [start] * len(batch["encoder_token_ids"])
        names = [n for n in batch if n.startswith(("encoder_", "query_"))]
        inputs = {name: batch[name] for name in (*names, "passage_vectors")}
        sampler = "beam" if settings.num_beams > 1 else "greedy"
        found = write_texts(self, rows, inputs, max_length, sampler, stop, settings)
        return [texts[0][0] for texts in found]

    @without_gradients
    def _sources(self, batch, strings):
        probabilities = ops.softmax(self.passage_scores(batch))
        found = []
        for number, row in enumerate(ops.convert_to_numpy(probabilities)):
            order = np.argsort(-row, kind="stable")
            names: Any = order.tolist()
            if strings:
                passages = self.preprocessor.search.passages
                names = [passages[i] for i in batch["passage_ids"][number][order]]
            found.append([*zip(names, row[order].tolist(), strict=True)])
        return found

    def read(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        """Compute what the decoder needs from the passages of each question.

        Args:
            batch: dict of tensors, the inputs of the call without the decoder's.

        Returns:
            Dict of `context`, what `project_context` of the decoder gives, in tensors
            `(batch, passages, ...)`; `cross_mask`, bool `(batch, passages, length)`;
            and `passage_scores`, float32 `(batch, passages)`.
        """
        count = batch["encoder_token_ids"].shape[1]
        rows = {k: flat(v) for k, v in side_of(batch, "encoder").items()}
        states = self.backbone.encoder(rows)["sequence_output"]
        context = self.backbone.decoder.project_context(states)
        return {
            "context": by_row(context, count),
            "cross_mask": ops.cast(batch["encoder_padding_mask"], "bool"),
            "passage_scores": self.passage_scores(batch),
        }

    def text_writer(self, inputs: dict[str, Tensor]) -> TextWriter:
        """Make the `TextWriter`: a decoder that reads all passages side by side.

        Args:
            inputs: dict of tensors, the inputs of the call without the decoder's.
        """
        count = inputs["encoder_token_ids"].shape[1]
        decoder = _DecoderOfPassages(self.backbone.decoder, count)
        return TextWriter(decoder, self.read(inputs), self._next_logits)

    def _next_logits(self, states, context):
        width = self.backbone.hidden_dim
        states = ops.reshape(states, (-1, states.shape[-1] // width, width))
        logits = ops.log_softmax(self.head(states))
        return token_marginal(context["passage_scores"], logits)

    def get_config(self) -> Config:
        return {**super().get_config(), **generation_config(self)}


class _DecoderOfPassages:
    """Decode rows with several passages each, whose states are side by side."""

    def __init__(self, decoder: Model, count: int) -> None:
        self._decoder, self._count = decoder, count

    def empty_cache(self, batch_size: Any, keys: int) -> Any:
        cache = self._decoder.empty_cache(batch_size * self._count, keys)
        return by_row(cache, self._count)

    def __call__(self, inputs, cache, cache_index, context, cross_mask, **_):
        outputs = self._decoder(
            {"token_ids": ops.repeat(inputs["token_ids"], self._count, axis=0)},
            cache=flat(cache),
            cache_index=cache_index,
            context=flat(context),
            cross_mask=flat(cross_mask),
        )
        states = ops.swapaxes(by_row(outputs["sequence_output"], self._count), 1, 2)
        width = states.shape[-1] * self._count
        return {
            "sequence_output": ops.reshape(states, (*ops.shape(states)[:2], width)),
            "cache": by_row(outputs["cache"], self._count),
        }


# Texts scored at once. A fixed number gives few shapes, and so few compilations.
_AT_ONCE = 32


@without_gradients
def likeliest_texts(
    task: Model,
    batch: dict[str, Any],
    start: list[int],
    max_length: int,
    stop: list[Any] | None,
    fast: bool,
    settings: GenerationSettings,
) -> list[list[int]]:
    """Find the likeliest text for each question among those that its passages suggest.

    Args:
        task: a `RetrievalAugmentedGenerator`.
        batch: dict of arrays, its inputs without the decoder's.
        start: list of ids that each text begins with.
        max_length: int. Tokens of a text.
        stop: list of ids that end a text, a list of them for each question, or `None`.
        fast: bool. Whether `p(y | x, z)` counts as 0 if the search with `z` didn't find
            `y`, so that each text is scored only by the passages that suggest it.
        settings: `GenerationSettings`. A passage suggests `num_beams` texts.

    Returns:
        A list of lists of ids, `start` included.

    Reference: [Lewis et al., 2020](https://arxiv.org/abs/2005.11401), section 2.5.
    """
    rows, passages = np.shape(batch["encoder_token_ids"])[:2]
    if stop and isinstance(stop[0], list):  # each passage is a row of its own
        stop = [ids for ids in stop for _ in range(passages)]
    suggested = _suggested(task, batch, start, max_length, stop, settings)
    texts, pairs = [], []  # the texts of each question, and the pairs to score
    for row in range(rows):
        by_passage = suggested[row * passages : (row + 1) * passages]
        distinct = list(dict.fromkeys(text for found in by_passage for text in found))
        texts.append(distinct)
        for number, text in enumerate(distinct):
            asked = (z for z in range(passages) if not fast or text in by_passage[z])
            pairs += [(row, number, z, text) for z in asked]
    context = task.read({name: ops.convert_to_tensor(x) for name, x in batch.items()})
    likelihoods = np.full((rows, max(map(len, texts)), passages), -np.inf, "float32")
    scored = _log_likelihoods(task, context, pairs, len(start))
    for (row, number, z, _), value in zip(pairs, scored, strict=True):
        likelihoods[row, number, z] = value
    scores = ops.convert_to_numpy(context["passage_scores"])
    best = []
    for row, found in enumerate(texts):
        of_texts = ops.convert_to_tensor(likelihoods[row, : len(found), :, None])
        prior = np.repeat(scores[row : row + 1], len(found), axis=0)
        marginals = ops.convert_to_numpy(sequence_marginal(prior, of_texts))
        best.append(list(found[int(np.argmax(marginals))]))
    return best


def _suggested(task, batch, start, max_length, stop, settings):
    """Search for texts with each passage separately; give lists of tuples."""
    sources = {
        name: np.reshape(value, (-1, np.shape(value)[-1]))
        for name, value in batch.items()
        if name.startswith("encoder_")
    }
    rows = [start] * len(sources["encoder_token_ids"])
    count = settings.num_beams
    settings = settings.replace(num_return_sequences=count, return_scores=False)
    sampler = "beam" if count > 1 else "greedy"
    generator = task.generator
    found = write_texts(generator, rows, sources, max_length, sampler, stop, settings)
    return [[tuple(text) for text, _ in texts] for texts in found]


def _log_likelihoods(task, context, pairs, begun):
    """Compute `log p(y | x, z)` of pairs of a text and a passage, as an array."""
    positions = task.backbone.max_sequence_length
    longest = padded_width(max(len(text) for *_, text in pairs), positions)
    scores = []
    for begin in range(0, len(pairs), _AT_ONCE):
        chosen = pairs[begin : begin + _AT_ONCE]
        chosen = chosen + chosen[:1] * (_AT_ONCE - len(chosen))
        ids = np.zeros((_AT_ONCE, longest), "int32")
        lengths = np.array([len(text) for *_, text in chosen])
        for row, (*_, text) in zip(ids, chosen, strict=True):
            row[: len(text)] = text
        places = np.arange(1, longest)
        counted = (places >= begun) & (places < lengths[:, None])
        rows, _, passages, _ = zip(*chosen, strict=True)
        losses = _losses(task, context, ids, np.array(rows), np.array(passages))
        scores.append(-(losses * counted).sum(1))
    return np.concatenate(scores)[: len(pairs)]


def _losses(task, context, ids, rows, passages):
    """Compute cross-entropies `(rows, length - 1)` of all tokens except the first."""
    count = context["cross_mask"].shape[1]
    index = ops.convert_to_tensor((rows * count + passages).astype("int32"))

    def chosen(part):
        flat = ops.reshape(part, (-1, *ops.shape(part)[2:]))
        return ops.take(flat, index, axis=0)

    outputs = task.backbone.decoder(
        {"token_ids": ops.convert_to_tensor(ids[:, :-1])},
        context=tuple(tuple(map(chosen, pair)) for pair in context["context"]),
        cross_mask=chosen(context["cross_mask"]),
    )
    logits = task.head(outputs["sequence_output"])
    targets = ops.convert_to_tensor(ids[:, 1:])
    return ops.convert_to_numpy(token_crossentropy(targets, logits))
