"""What every pre-training task shares: defaults and data."""

from typing import Any

import keras
import keras_hub

from keras_bertfam import distribution, optimizers
from keras_bertfam.callbacks import show_total, with_stream_position
from keras_bertfam.callbacks.backup import released
from keras_bertfam.callbacks.progress import progress_of_run
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.layers.data.seeding import StreamPosition
from keras_bertfam.layers.modeling.recomputation import set_recomputation
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.models.exported import Exported, row_specs
from keras_bertfam.models.fixed_arguments import FixedArguments
from keras_bertfam.models.subclassed import Subclassed, functional_bases_kept
from keras_bertfam.presets.task_presets import TaskPresets
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.tasks.compilation import CompiledSteps, FirstStep
from keras_bertfam.tasks.data import DataTaken
from keras_bertfam.tasks.failures import VariablesKept, usable_after_errors
from keras_bertfam.tasks.inputs import (
    able_to_begin_later,
    count_batches,
    is_arrays,
    is_of_grain,
    known_count,
    known_shapes,
    may_end,
    rows_of_batches,
    say,
    split_off_last,
    yields_batches,
)
from keras_bertfam.tasks.published import PublishedTraining, checked_accumulation
from keras_bertfam.tasks.ranges import check_given
from keras_bertfam.tasks.scored_tokens import ScoredTokens
from keras_bertfam.tasks.watching import Watched
from keras_bertfam.tasks.weighing import StepOfParts, WeighedBatches
from keras_bertfam.types import Config, Model, Tensor


class PretrainingTask(
    PublishedTraining,
    FixedArguments,
    Exported,
    TaskPresets,
    DataTaken,
    VariablesKept,
    Watched,
    CompiledSteps,
    ScoredTokens,
    WeighedBatches,
    distribution.DistributedTrainer,
    StepOfParts,
    keras_hub.models.Task,
    metaclass=Subclassed,
):
    """Base class of the pre-training tasks: a backbone, a preprocessor, a head.

    A subclass makes its heads in `__init__`, which ends with
    `self.compile_by_default()`, says in `default_loss` and `default_metrics` what
    `compile()` takes without arguments, and defines `call`. A subclass is a plain
    `keras.Model`, not a functional one.

    Attributes:
        label_kind: what labels number, `"token"`, `"class"`, `"pair"`, `"choice"` or
            `"place"` in a row, or a dict of these by output; `"number"` where they
            are measures. `fit()` refuses what is none. `None` asks for no labels.
        extra_inputs: names of what an exported model takes besides the inputs of the
            backbone: rows of int32, and of bool if it's a mask.
        reads_pooler: whether the loss reads the backbone's pooler. One that it
            doesn't read isn't trained.
        has_global_tokens: whether rows have global tokens, if the backbone can. The
            projections of a task without aren't trained.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `keras_hub.models.Preprocessor` that turns text into what
            the task trains on, or `None` for data that is preprocessed already.
        compile: bool. Whether the task is compiled as by `compile()` without
            arguments. Without, `fit()` and `evaluate()` ask for it. Defaults to
            `True`.
        **kwargs: arguments of `keras.Model`.

    Raises:
        ValueError: if the preprocessor's tokenizer has more tokens than the
            backbone has rows for them.
    """

    backbone_cls: Any = EncoderBackbone
    label_kind: Any = None
    extra_inputs: tuple[str, ...] = ()
    reads_pooler = False
    has_global_tokens = False

    def __init__(
        self,
        backbone: Model,
        preprocessor: Any = None,
        compile: bool = True,
        **kwargs: Any,
    ) -> None:
        with functional_bases_kept(type(self)):
            super().__init__(compile=False, **kwargs)
        self._compiles_by_default, self.optimizer = compile, None
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.dtype_policy = backbone.dtype_policy
        if preprocessor is not None:
            self._check_vocabulary(preprocessor.tokenizer)

    def _check_vocabulary(self, tokenizer):
        if not has_vocabulary(tokenizer):
            return  # it is being loaded, and gets its vocabulary later
        size = tokenizer.vocabulary_size()
        if size > self.backbone.vocabulary_size:
            raise ValueError(
                "`preprocessor` and `backbone` don't fit. Expected a tokenizer of "
                f"at most vocabulary_size={self.backbone.vocabulary_size} tokens. "
                f"Received one of {size}."
            )

    def default_loss(self) -> Any:
        """The loss that `compile()` takes when none is given.

        `None` for a task that defines `compute_loss`, and then takes no other.
        """
        raise TypeError(f"{type(self).__name__} must define `default_loss`.")

    def added_losses(self) -> Tensor:
        """What layers add to the loss, as `HeadGates`; 0 if there is nothing.

        For a task that computes its own loss.
        """
        return keras.Model.compute_loss(self) if self.losses else 0.0

    def default_metrics(self) -> Any:
        """The weighted metrics that `compile()` takes when none are given."""
        return []

    def input_signature(self) -> dict[str, keras.InputSpec]:
        return {**self.backbone.input_signature(), **row_specs(self.extra_inputs)}

    def unused_variables(self) -> list[keras.Variable]:
        """Variables of the backbone that have no part in the loss.

        They keep `trainable=True` for the tasks that come after, but this one
        leaves them out of `trainable_variables`.

        Returns:
            List of variables: those of the pooler, unless `reads_pooler`, and those
            of global tokens only, unless `has_global_tokens`.
        """
        unused = [] if self.has_global_tokens else global_variables(self.backbone)
        return unused + ([] if self.reads_pooler else pooler_variables(self.backbone))

    def _split_off_unused(self, variables, keep):
        unused = {id(v) for v in self.unused_variables()}
        return [v for v in variables if (id(v) in unused) != keep]

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self._split_off_unused(super().trainable_variables, keep=True)

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return self._split_off_unused(super().trainable_weights, keep=True)

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        unused = self._split_off_unused(super().trainable_variables, keep=False)
        return [*super().non_trainable_variables, *unused]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        unused = self._split_off_unused(super().trainable_weights, keep=False)
        return [*super().non_trainable_weights, *unused]

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        weighted_metrics: Any = "auto",
        learning_rate: float
        | keras.optimizers.schedules.LearningRateSchedule
        | None = None,
        total_steps: int | None = None,
        warmup_steps: float | None = None,
        gradient_accumulation_steps: int | None = None,
        rematerialize: str = "none",
        **kwargs: Any,
    ) -> None:
        """Configure training; without arguments as published, see `recipe()`.

        The learning rate is a schedule, and can be set nevertheless: in a `fit()` with
        `keras.callbacks.ReduceLROnPlateau` the schedule goes on at the lower level;
        else, as by `keras.callbacks.LearningRateScheduler`, the rate that is set
        takes its place.

        Args:
            optimizer: `"auto"`, an optimizer or its name. `"auto"` is
                `keras_bertfam.optimizers.pretraining_optimizer` with the recipe of
                the objective or of the backbone's family. Where the batches of
                `fit()` are less than a quarter of its batches, a warning says so.
            loss: `"auto"` or a loss. A task that computes its own takes no other.
            weighted_metrics: `"auto"`, a list of metrics, or `None`.
            learning_rate: float, the peak, or a schedule; the published one by
                default. Read with `optimizer="auto"` only, as are the next two.
            total_steps: int or `None`. Steps until the rate is 0; `None` means
                those of the next `fit()`.
            warmup_steps: int, or a float in `[0, 1)` as a share of the total; the
                published share by default.
            gradient_accumulation_steps: int or `None`. Of how many batches an update
                is. Its loss and gradient are those of one batch of all their rows, as
                each part of the loss counts by what it is divided by, such as masked
                tokens, see `loss_counts`. Steps of the schedule are updates. An
                optimizer of your own takes it itself.
            rematerialize: `"none"`, `"attention"` or `"block"`. What a step computes
                again for its gradient, in place of keeping it: nothing; the scores of
                attention, where no kernel spares them, which a step of long rows keeps
                most of; or each whole block, for the least memory and a third more
                time.
            **kwargs: other arguments of `keras.Model.compile`.
        """
        set_recomputation(self, rematerialize)
        self._rematerialize = rematerialize
        self._has_published_rate = optimizer == "auto" and learning_rate is None
        default_loss = self.default_loss()
        if default_loss is None and loss not in ("auto", None):
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Expected "
                f'loss="auto". Received: loss={loss!r}.'
            )
        distribution.check_compilation(self, kwargs.get("jit_compile"))
        accumulation = checked_accumulation(gradient_accumulation_steps, optimizer)
        if optimizer == "auto":
            given = {
                "learning_rate": learning_rate,
                "total_steps": total_steps,
                "warmup_steps": warmup_steps,
                "gradient_accumulation_steps": accumulation,
            }
            given = {name: value for name, value in given.items() if value is not None}
            optimizer = self._make_optimizer({**self.optimizer_defaults, **given})
        super().compile(
            optimizer=optimizer,
            loss=default_loss if loss == "auto" else loss,
            weighted_metrics=self.default_metrics()
            if weighted_metrics == "auto"
            else weighted_metrics,
            **kwargs,
        )
        optimizers.count_updates(self.optimizer)

    def compile_by_default(self) -> None:
        """Compile without arguments, unless `compile=False` was given."""
        if self._compiles_by_default:
            self.compile()

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        if not config:  # it isn't compiled
            return config
        # An optimizer's config lacks the variables without weight decay.
        excluded = optimizers.excludes_norms_and_biases(self.optimizer)
        return {
            **config,
            "excludes_norms_and_biases": excluded,
            "rematerialize": self._rematerialize,
        }

    def compile_from_config(self, config: Config) -> None:
        config = dict(config)
        excluded = config.pop("excludes_norms_and_biases")
        self.compile(**keras.saving.deserialize_keras_object(config))
        if excluded:
            optimizers.exclude_norms_and_biases(self.optimizer)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """`keras.Model.fit`, told how long and where the data is.

        A schedule without `total_steps` gets those of this call. If the length
        of `x` isn't known and `steps_per_epoch` isn't given either, `x` is
        counted once. As in Keras, arrays and lists are shuffled unless
        `shuffle=False`, by the preprocessor's seed, and a `tf.data.Dataset` is
        taken as it comes. See `CompiledSteps` for when TensorFlow compiles the step.
        """
        if not self.compiled:
            raise ValueError(
                "You must call `compile()` before `fit()`: this "
                f"{type(self).__name__} was made with compile=False."
            )
        check_given(self, x, y)
        size, position = checked_batch_size(batch_size), None
        held_out_size = kwargs.get("validation_batch_size") or size
        rows = size if is_arrays(x) else rows_of_batches(x)
        if is_arrays(x):
            if kwargs.pop("shuffle", True):
                position = getattr(self.preprocessor, "position", StreamPosition())
            data = self._rows(x, y, kwargs.pop("sample_weight", None))
            share = kwargs.pop("validation_split", None)
            if share and kwargs.get("validation_data") is None:
                data, held_out = split_off_last(data, share)
                kwargs["validation_data"] = self._batched(held_out, held_out_size)
            x, y, batch_size = self._batched(data, size, position), None, None
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, tuple) and is_arrays(held_out[0]):
            held_out = self._batched(self._rows(*held_out), held_out_size)
            kwargs["validation_data"] = held_out
        if self._has_published_rate:
            self._warn_of_small_batches(rows)
        steps = kwargs.get("steps_per_epoch")
        callbacks = with_stream_position(
            kwargs.pop("callbacks", None), x, steps, position
        )
        if hasattr(x, "cardinality") or is_of_grain(x):
            kwargs.setdefault("shuffle", False)  # Keras warns that it can't
        with (
            released(callbacks),
            usable_after_errors(self),
            may_end(steps),
            optimizers.rates_set_by(self.optimizer, callbacks),
        ):
            verbose = kwargs.get("verbose", "auto")
            if optimizers.needs_total_steps(self.optimizer) and steps is None:
                steps = count_batches(x, verbose)
            left = epochs - kwargs.get("initial_epoch", 0)
            optimizers.resolve_schedule(self.optimizer, steps and steps * left)
            show_total(callbacks, known_count(x))
            in_all = known_count(x) if steps is None else steps
            self.choose_compilation(known_shapes(x), in_all and in_all * epochs)
            if self.train_function is None:
                callbacks.append(FirstStep(verbose))
                say(self.preparation(), verbose)
            callbacks += progress_of_run(callbacks, verbose)
            kwargs |= {"epochs": epochs, "callbacks": callbacks}
            x = able_to_begin_later(x, callbacks)
            if yields_batches(x):
                return keras.Model.fit(self, x, y, batch_size, **kwargs)
            return super().fit(x, y, batch_size, **kwargs)


def pooler_variables(backbone: Model) -> list[keras.Variable]:
    """The variables of a backbone's pooler; none without one."""
    return [] if backbone.pooler is None else backbone.pooler.variables


def global_variables(backbone: Model) -> list[keras.Variable]:
    """The variables of a backbone's projections of global tokens, if it has any."""
    layers: list[Any] = getattr(backbone, "global_projections", list)()
    return [variable for layer in layers for variable in layer.variables]
