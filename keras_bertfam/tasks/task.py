"""Define tasks: a backbone, a preprocessor and heads, trained together.

You can follow a training step from top to bottom. `fit` makes batches of its data and
calls Keras's loop. The loop calls `train_step` for each batch. `train_step` calls the
task with the labels among its inputs, so that vocabulary heads can return the labels'
scores (`predict_tokens`). Then come Keras's `compute_loss`, and the optimizer.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import keras_hub
from keras import ops

from keras_bertfam import distribution, optimizers
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.callbacks.backup import progress_of_run, released
from keras_bertfam.callbacks.stream_position import show_total, with_stream_position
from keras_bertfam.keras_quirks import replicas
from keras_bertfam.keras_quirks.functional_bases import (
    Subclassed,
    functional_bases_kept,
)
from keras_bertfam.keras_quirks.steps_by_rank import make_steps
from keras_bertfam.layers.blocks.dense import weights_cast_once
from keras_bertfam.layers.blocks.recomputation import set_recomputation
from keras_bertfam.layers.data.pipelines import (
    checked_batch_size,
    is_cached,
    keeps_batches,
    ready_to_iterate,
    remember_count,
)
from keras_bertfam.layers.data.seeding import StreamPosition, shuffled_batches
from keras_bertfam.layers.data.user_inputs import as_rows
from keras_bertfam.layers.data.value_ranges import plain_error
from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.models.exported import row_specs
from keras_bertfam.models.library_model import LibraryModel
from keras_bertfam.optimizers.base import (
    exclude_norms_and_biases,
    excludes_norms_and_biases,
    inner,
    rates_set_by,
)
from keras_bertfam.optimizers.pretraining import (
    count_updates,
    needs_total_steps,
    resolve_schedule,
)
from keras_bertfam.presets.families.parts.recipes import (
    FineTuningRecipe,
    PretrainingRecipe,
)
from keras_bertfam.presets.task_presets import TaskPresets
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.tasks import (
    compilation,
    compiled_losses,
    recipes,
    step_watch,
    torch_graph,
)
from keras_bertfam.tasks.compiled_losses import weigh_batches
from keras_bertfam.tasks.inputs import (
    able_to_begin_later,
    as_tensors,
    check_given,
    checked_batch,
    count_batches,
    is_arrays,
    is_of_grain,
    is_preprocessed,
    known_count,
    known_shapes,
    may_end,
    print_line,
    remember_shapes,
    rows_of_batches,
    split_off_last,
    texts_explained,
    yields_batches,
)
from keras_bertfam.tasks.parts_of_loss import STEPS
from keras_bertfam.types import Config, Model, Tensor

# The name of the labels among a step's inputs.
LABELS = "labels"


class PretrainingTask(
    LibraryModel,
    TaskPresets,
    keras_hub.models.Task,
    metaclass=Subclassed,
):
    """Base class of the tasks: a backbone, a preprocessor, a head.

    A subclass makes its heads in `__init__`, which ends with
    `self.compile_by_default()`. It defines `call`, and in `default_loss` and
    `default_metrics` the defaults of `compile()`. A subclass is a plain `keras.Model`,
    not a functional one.

    Attributes:
        label_kind: what the labels are: numbers of a `"token"`, `"token or -1"`,
            `"class"`, `"pair"`, `"choice"` or `"place"` in a row, or a dict of these by
            output; or a measured `"number"`. `fit()` refuses other labels. `None` for a
            task without labels.
        extra_inputs: names of an exported model's inputs in addition to the backbone's:
            rows of int32, and of bool for a mask.
        reads_labels: whether `call` takes `labels` among its inputs, in steps of
            `fit()` and `evaluate()`. A subclass with another `call` must set it again.
        scores_tell_accuracy: whether the scores of labels tell if a label is the
            likeliest token. Otherwise accuracy is computed from logits.
        reads_pooler: whether the loss reads the backbone's pooler. Otherwise the pooler
            isn't trained.
        has_global_tokens: whether rows have global tokens, if the backbone supports
            them. Otherwise their projections aren't trained.
        has_pairs_of_rows: whether each two preprocessed rows belong together, so that
            `fit()` must not shuffle them.
        memory: the layer that remembers the batch before, in a task whose rows continue
            from batch to batch; or `None`.
        recipe_family: name of the family whose recipe belongs to the objective. `None`
            if several families have the objective: then the recipe is that of the
            backbone's family.

    Args:
        backbone: `keras_bertfam.models.EncoderBackbone`.
        preprocessor: `keras_hub.models.Preprocessor` that turns text into the task's
            training data, or `None` for data that is preprocessed already.
        compile: bool. Whether the constructor calls `compile()` without arguments. With
            `False`, call `compile()` before `fit()` and `evaluate()`. Defaults to
            `True`.
        **kwargs: arguments of `keras.Model`.

    Raises:
        ValueError: if the preprocessor's tokenizer has more tokens than the backbone's
            embeddings have rows; for another `dtype` than the backbone's.
    """

    backbone_cls: Any = EncoderBackbone
    label_kind: Any = None
    extra_inputs: tuple[str, ...] = ()
    reads_labels = False
    has_pairs_of_rows = False
    scores_tell_accuracy = True
    reads_pooler = False
    has_global_tokens = False
    recipe_family: str | None = None
    jit_compile: Any

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
        if kwargs.get("dtype") is not None:
            self._check_dtype(kwargs["dtype"])
        self.dtype_policy = backbone.dtype_policy
        if preprocessor is not None:
            self._check_vocabulary(preprocessor.tokenizer)

    def _check_dtype(self, dtype):
        """Raise an error for another precision than the backbone's and the heads'."""
        own, given = self.backbone.dtype_policy, keras.dtype_policies.get(dtype)
        for kind in ("compute_dtype", "variable_dtype"):
            if getattr(own, kind) != getattr(given, kind):
                raise ValueError(
                    "`dtype` must be the backbone's. Give another one to the "
                    f"backbone, or to `from_preset`. Received: {given.name}, with a "
                    f"backbone of {own.name}."
                )

    def _check_vocabulary(self, tokenizer):
        if not has_vocabulary(tokenizer):
            return  # the preprocessor is being loaded, and gets its vocabulary later
        size = tokenizer.vocabulary_size()
        if size > self.backbone.vocabulary_size:
            raise ValueError(
                "`preprocessor` and `backbone` don't go together. Expected a "
                "tokenizer of at most "
                f"vocabulary_size={self.backbone.vocabulary_size} tokens. Received "
                f"one of {size}."
            )

    # Methods and attributes that a subclass defines.

    def default_loss(self) -> Any:
        """Make the default loss of `compile()`.

        It is `None` for a task that computes its `own_loss` and takes no other loss.
        """
        raise TypeError(f"{type(self).__name__} must define `default_loss`.")

    def default_metrics(self) -> Any:
        """Make the default weighted metrics of `compile()`."""
        return []

    @property
    def loss_counts(self) -> int:
        """int: by how many tensors the loss divides; with 1, the first one counts.

        A step of several batches equals a step of one large batch: each batch is
        weighted by the divisor of its loss in `distribution.global_mean`. If a loss has
        parts with different divisors, such as the numbers of masked tokens and of
        pairs, each part needs its own gradient, which costs a backward pass.
        """
        return 1

    def own_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any
    ) -> Tensor | None:
        """Compute a loss that depends on more than labels and predictions.

        Args:
            x: the inputs of a batch.
            y: its labels.
            y_pred: what `call` returned.
            sample_weight: the labels' weights, or `None`.

        Returns:
            float scalar, with `added_losses()`. By default `None`: the task then uses
            the loss that it was compiled with.
        """

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor | None:
        loss = self.own_loss(x, y, y_pred, sample_weight)
        if loss is not None:
            return loss
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def added_losses(self) -> Tensor:
        """Sum the losses that layers add, such as `HeadGates`; 0 if there are none.

        A task that computes its own loss calls it.
        """
        return keras.Model.compute_loss(self) if self.losses else 0.0

    def input_signature(self) -> dict[str, keras.InputSpec]:
        return {**self.backbone.input_signature(), **row_specs(self.extra_inputs)}

    def unused_variables(self) -> list[keras.Variable]:
        """List the variables of the backbone that the loss doesn't depend on.

        They keep `trainable=True` for later tasks, but this task leaves them out of
        `trainable_variables`.

        Returns:
            List of variables: the pooler's, unless `reads_pooler`; those for global
            tokens only, unless `has_global_tokens`; and the output table, unless a head
            computes logits with it.
        """
        unused = [] if self.has_global_tokens else global_variables(self.backbone)
        if not self.reads_pooler:
            unused = unused + pooler_variables(self.backbone)
        return unused + self.unread_output_table(self.backbone)

    def unread_output_table(self, backbone: Model) -> list[keras.Variable]:
        """List the output table of a backbone, if no head computes logits with it."""
        embedding = getattr(backbone, "token_embedding", None)
        table = getattr(embedding, "reverse_embeddings", None)
        read = any(
            isinstance(layer, TiedLogits) and layer.token_embedding is embedding
            for layer in self._flatten_layers(recursive=False)
        )
        return [] if table is None or read else [table]

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

    # Methods that configure training.

    def published_recipe(self) -> PretrainingRecipe | FineTuningRecipe:
        """Give the recipe that `compile()` follows."""
        return recipes.recipe_of(self)

    @property
    def optimizer_defaults(self) -> dict[str, Any]:
        """Give the arguments with which `compile()` makes its optimizer by default."""
        arguments = self.published_recipe().optimizer_arguments()
        # In float16 a smaller epsilon is 0, and weights without a gradient would become
        # NaN.
        is_half = self.backbone.variable_dtype == "float16"
        if is_half and arguments.get("epsilon", 1.0) < 1e-6:
            arguments["epsilon"] = 1e-6
        return arguments

    def make_optimizer(self, **arguments: Any) -> keras.optimizers.Optimizer:
        """Make the optimizer of `compile(optimizer="auto")`."""
        return optimizers.pretraining_optimizer(**arguments)

    def recipe(self, print_fn: Callable[[str], Any] | None = None) -> None:
        """Print this task's training settings beside the published ones.

        Args:
            print_fn: function that takes the text. Defaults to `print`.

        Example:

        ```python
        backbone = keras_bertfam.models.RobertaBackbone.from_preset(
            "roberta_base_en", load_weights=False)
        keras_bertfam.tasks.MaskedLM(backbone).recipe()
        ```
        """
        report = recipes.compare_with_published(self, self.published_recipe())
        (print_fn or print)(report)

    def training_facts(self) -> dict[str, Any]:
        return recipes.training_facts(self)

    @checked
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
        """Configure training; the defaults are the published settings, see `recipe()`.

        The learning rate is a schedule, but callbacks can still set it. In a `fit()`
        with `keras.callbacks.ReduceLROnPlateau` the schedule continues at the lower
        level. With other callbacks, such as `keras.callbacks.LearningRateScheduler`,
        the rate that is set replaces the schedule.

        Args:
            optimizer: `"auto"`, an optimizer or its name. `"auto"` is
                `keras_bertfam.optimizers.pretraining_optimizer` with the recipe of
                the objective or of the backbone's family. A warning says if the batches
                of `fit()` are smaller than a quarter of the recipe's.
            loss: `"auto"` or a loss. A task that computes its own loss takes no other.
            weighted_metrics: `"auto"`, a list of metrics, or `None`.
            learning_rate: float, the peak, or a schedule. Defaults to the published
                one. It is read only with `optimizer="auto"`, as are the next two.
            total_steps: int or `None`. Steps until the rate is 0. `None` means the
                steps of the next `fit()`.
            warmup_steps: int, or a float in `[0, 1)` as a share of the total. Defaults
                to the published share.
            gradient_accumulation_steps: int or `None`. How many batches make one update
                of the weights. Loss and gradient equal those of one batch with all
                their rows, because each part of a batch's loss is weighted by its
                divisor, such as the number of masked tokens; see `loss_counts`. The
                schedule counts updates, unless it is one of Keras, which counts
                batches. If you give an optimizer, give this argument to the optimizer.
            rematerialize: `"none"`, `"attention"` or `"block"`. What a step computes
                again for the gradient instead of keeping it. `"attention"`: the scores
                of attention, which take most of the memory of long rows, unless a
                kernel already saves them. `"block"`: each whole block, for the least
                memory and a third more time.
            **kwargs: other arguments of `keras.Model.compile`. `jit_compile="auto"`
                compiles under JAX and on accelerators, as Keras does. It also compiles
                TensorFlow's step in float32 on a CPU, if `fit()` makes enough steps to
                gain time.
                `jit_compile=True` also compiles under PyTorch: the whole step, for each
                shape of batches. That takes a minute and a C++ compiler, and makes the
                step more than twice as fast on a GPU.
        """
        jit_compile = kwargs.get("jit_compile")
        torch_graph.check_part(jit_compile, "rematerialize", rematerialize)
        # Another task on the same backbone may have chosen, too: see `make_steps`.
        if rematerialize != getattr(self, "_rematerialize", "none"):
            set_recomputation(self, rematerialize)
        self._rematerialize = rematerialize
        self._has_published_rate = optimizer == "auto" and learning_rate is None
        default_loss = self.default_loss()
        if default_loss is None and loss not in ("auto", None):
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Expected "
                f'loss="auto". Received: loss={loss!r}.'
            )
        distribution.check_compilation(self, jit_compile)
        accumulation = recipes.checked_accumulation(
            gradient_accumulation_steps, optimizer
        )
        if optimizer == "auto":
            given = {
                "learning_rate": learning_rate,
                "total_steps": total_steps,
                "warmup_steps": warmup_steps,
                "gradient_accumulation_steps": accumulation,
            }
            given = {name: value for name, value in given.items() if value is not None}
            with distribution.scope_of(self):
                optimizer = self.make_optimizer(**{**self.optimizer_defaults, **given})
        batches = getattr(inner(optimizer), "gradient_accumulation_steps", None)
        torch_graph.check_part(jit_compile, "gradient_accumulation_steps", batches)
        loss = default_loss if loss == "auto" else loss
        if weighted_metrics == "auto":
            weighted_metrics = self.default_metrics()
        step_watch.forget(self)
        with distribution.scope_of(self):
            super().compile(
                optimizer=optimizer,
                loss=loss,
                weighted_metrics=weighted_metrics,
                **kwargs,
            )
        replicas.prepare_optimizer(self)
        self._weighs_batches = weigh_batches(self, loss)
        readers = (loss, kwargs.get("metrics"), weighted_metrics)
        self._scoring = compiled_losses.scoring_of(self, readers)
        self._gives_labels = compiled_losses.call_takes_labels(self)
        self._compiles_as_it_pays = kwargs.get("jit_compile", "auto") == "auto"
        self._compiles_step = False
        self._rate_of_step: Callable[[], Any] | None = None
        count_updates(self.optimizer)

    def compile_by_default(self) -> None:
        """Compile without arguments, unless `compile=False` was given."""
        if self._compiles_by_default:
            self.compile()

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        if not config:  # the task isn't compiled
            return config
        if self._compiles_as_it_pays:
            # Keras writes the value that it chose for "auto", which is for this
            # machine.
            config = {**config, "jit_compile": "auto"}
        # An optimizer's config doesn't list the variables without weight decay.
        excluded = excludes_norms_and_biases(self.optimizer)
        return {
            **config,
            "excludes_norms_and_biases": excluded,
            "has_optimizer_state": getattr(self.optimizer, "built", False),
            "rematerialize": self._rematerialize,
        }

    def compile_from_config(self, config: Config) -> None:
        config = dict(config)
        excluded = config.pop("excludes_norms_and_biases")
        # Before the first step an optimizer has no moments, so a file has none.
        has_state = config.pop("has_optimizer_state", True)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if excluded:
            exclude_norms_and_biases(self.optimizer)
        if self.optimizer is not None and has_state:
            self.optimizer.build(self.trainable_variables)

    # Methods that prepare data.

    @as_written
    def preprocess_samples(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        if not is_preprocessed(x):
            data = super().preprocess_samples(x, y, sample_weight)
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        data = checked_batch(self, x, y, sample_weight)
        return keras.utils.pack_x_y_sample_weight(*data)

    def _rows(self, x, y=None, sample_weight=None):
        """Make a dataset of the rows from arrays."""
        rows = as_rows(x, y, sample_weight)
        checked_batch(self, x, y, sample_weight)
        return rows

    def _batched(self, data, batch_size, position=None):
        """Make batches of rows, in order or shuffled for each epoch of a position."""
        # With memory, each row continues the same row of the batch before.
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        in_order = self.has_pairs_of_rows and is_preprocessed(x)
        if position is None or in_order or self._memory() is not None:
            return ready_to_iterate(data.batch(batch_size))
        seed = getattr(self.preprocessor, "seed", 0)
        batches = ready_to_iterate(shuffled_batches(data, batch_size, seed, position))
        remember_shapes(batches, 1 + (len(data) % batch_size > 0))
        return remember_count(batches, -(-len(data) // batch_size))

    def _memory(self):
        return getattr(self, "memory", None)

    def _memory_aside(self):
        """Set the memory of training aside in a context, if there is one."""
        memory = self._memory()
        return contextlib.nullcontext() if memory is None else memory.put_aside()

    def _needs_total_steps(self) -> bool:
        """Tell whether a schedule needs the number of steps of the next `fit()`."""
        return needs_total_steps(self.optimizer)

    def _take_total_steps(self, steps: int | None) -> None:
        """Give the number of steps of a `fit()` to the schedules that need it.

        Args:
            steps: int; `None` if nothing needs the number, or it can't be counted.
        """
        resolve_schedule(self.optimizer, steps)

    @checked
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Train, as `keras.Model.fit` does.

        A schedule without `total_steps` gets the steps of this call. If neither the
        length of `x` nor `steps_per_epoch` is known, `x` is read once to count its
        batches. As in Keras, arrays and lists are shuffled unless `shuffle=False`; the
        preprocessor's seed decides the order. A `tf.data.Dataset` keeps its order.

        Epoch `e` has the rows, order and masks of pass `e` over the data. So a second
        `fit()` begins with those of the first; `initial_epoch` lets it go on with
        others, as in `fit(data, initial_epoch=3, epochs=6)` after three epochs.
        """
        self._check_compiled("fit()")
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
            recipes.warn_of_small_batches(self, rows)
        steps = kwargs.get("steps_per_epoch")
        callbacks = with_stream_position(
            kwargs.pop("callbacks", None),
            x,
            steps,
            position,
            keeps_batches(x),
            is_cached(x),
        )
        if hasattr(x, "cardinality") or is_of_grain(x):
            kwargs.setdefault("shuffle", False)  # Keras would warn that it can't
        with (
            released(callbacks),
            self._usable_after_errors(),
            may_end(steps),
            rates_set_by(self.optimizer, callbacks),
        ):
            verbose = kwargs.get("verbose", "auto")
            if self._needs_total_steps() and steps is None:
                steps = count_batches(x, verbose)
            left = epochs - kwargs.get("initial_epoch", 0)
            if left > 0:  # otherwise the run is done, and Keras trains nothing
                self._take_total_steps(steps and steps * left)
            show_total(callbacks, known_count(x))
            in_all = known_count(x) if steps is None else steps
            self._choose_compilation(known_shapes(x), in_all and in_all * epochs)
            if self.train_function is None:
                callbacks.append(compilation.FirstStep(verbose))
                print_line(compilation.preparation(self._compiles_step), verbose)
            callbacks += progress_of_run(callbacks, verbose)
            kwargs |= {"epochs": epochs, "callbacks": callbacks}
            x = able_to_begin_later(x, callbacks)
            if yields_batches(x):
                with texts_explained(x):
                    return keras.Model.fit(self, x, y, batch_size, **kwargs)
            return super().fit(x, y, batch_size, **kwargs)

    def _check_compiled(self, what):
        if not self.compiled:
            raise ValueError(
                f"You must call `compile()` before `{what}`: this "
                f"{type(self).__name__} was made with compile=False."
            )

    @checked
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Measure loss and metrics as in Keras; evaluation has its own memory.

        The `loss` is the mean over batches, each of which counts by its rows. If rows
        have different numbers of targets, or weights, it depends on `batch_size`. The
        metrics don't, because they count all targets alike.
        """
        self._check_compiled("evaluate()")
        check_given(self, x, y)
        if is_arrays(x):
            rows = self._rows(x, y, sample_weight)
            x = self._batched(rows, checked_batch_size(batch_size))
            y = batch_size = sample_weight = None
        kwargs |= {"batch_size": batch_size, "sample_weight": sample_weight}
        ends = may_end(kwargs.get("steps"))
        with (
            self._memory_aside(),
            self._usable_after_errors(),
            ends,
            weights_cast_once(),
        ):
            if yields_batches(x):
                with texts_explained(x):
                    return keras.Model.evaluate(self, x, y, **kwargs)
            return super().evaluate(x, y, **kwargs)

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        check_given(self, x, labelled=False)
        if is_arrays(x):
            size, batch_size = checked_batch_size(batch_size), None
            x = self._batched(self._rows(x), size)
        ends = may_end(kwargs.get("steps"))
        with (
            self._memory_aside(),
            self._usable_after_errors(),
            ends,
            weights_cast_once(),
        ):
            if yields_batches(x):
                with texts_explained(x):
                    return keras.Model.predict(self, x, batch_size, **kwargs)
            return super().predict(x, batch_size, **kwargs)

    # KerasHub's versions of these methods take no dicts of targets.

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        data = self.preprocess_samples(x, y, sample_weight)
        return keras.Model.train_on_batch(self, *as_tensors(data), **kwargs)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        data = self.preprocess_samples(x, y, sample_weight)
        return keras.Model.test_on_batch(self, *as_tensors(data), **kwargs)

    # Methods of a step.

    def train_step(self, *args: Any) -> Any:
        """Train on one batch.

        Args:
            *args: the batch; under JAX also the model's state before it.

        Returns:
            The logs; under JAX, a tuple of the logs and the state after the batch.
        """
        *state, data = args
        with replicas.only_with(data):
            data = self._with_labels(data)
            if self._weighs_batches:
                logs = STEPS[keras.backend.backend()](self, *state, data)
            else:
                logs = super().train_step(*state, data)
            return replicas.as_workers_reduce(self, logs)

    def test_step(self, *args: Any) -> Any:
        """Evaluate one batch; see `train_step`."""
        *state, data = args
        with replicas.only_with(data):
            logs = super().test_step(*state, self._with_labels(data))
            return replicas.as_workers_reduce(self, logs)

    def _with_labels(self, data):
        """Add the labels of a batch to its inputs, if `call` takes them."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if y is None or not self._gives_labels:
            return data
        return {**x, LABELS: y}, y, sample_weight

    def predict_tokens(
        self, head: Any, states: Tensor, *args: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Call a vocabulary head; in `fit()` and `evaluate()`, get the labels' scores.

        Logits are by far the largest tensor of a step. But losses and metrics of tokens
        need only the label's cross-entropy, and whether the label is the likeliest
        token. The head computes both without keeping the logits.

        Args:
            head: a layer whose `call` takes `targets`, such as `layers.TiedLogits`.
            states: float tensor of shape `(batch, count, width)`.
            *args: other arguments of the head.
            labels: int tensor `(batch, count)`, or `None`: the `labels` among the
                inputs of `call`.

        Returns:
            float32 logits of shape `(batch, count, vocabulary_size)`. With labels, if
            all losses and metrics can read scores, the labels' scores, `(batch, count,
            1, 2 or 4)`; losses and metrics recognise them by the shape.
        """
        if labels is None or not self._scoring or len(labels.shape) != 2:
            return head(states, *args)
        statistics = {"statistics": True} if self._scoring == "statistics" else {}
        return ops.expand_dims(head(states, *args, targets=labels, **statistics), -2)

    def watch_steps(self) -> step_watch.StepWatch:
        """Count tokens and keep gradients' norms, from now until the next `compile()`.

        Returns:
            `StepWatch`.
        """
        watch, is_new = step_watch.begin(self)
        if is_new:
            self.make_train_function(force=True)
        return watch

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        watch = step_watch.watch_of(self)
        return [*super().metrics, *([] if watch is None else [watch])]

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Tensor]:
        watch = step_watch.watch_of(self)
        if watch is not None:
            watch.update_state(x)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _choose_compilation(self, shapes, steps):
        """Decide whether the training step of the next `fit()` is compiled."""
        compiles = (
            self._compiles_as_it_pays
            and not (self.jit_compile or self.run_eagerly)
            and self.compute_dtype == "float32"
            and compilation.saves_time(shapes, steps)
            and distribution.may_compile_steps(self)
        )
        if compiles != self._compiles_step:
            self._compiles_step = compiles
            self.train_function = None

    def make_train_function(self, force: bool = False) -> Any:
        # What was made may be of another schedule, and another task on this backbone
        # may have made other choices since.
        set_recomputation(self, self._rematerialize)
        rate = getattr(inner(self.optimizer), "_learning_rate", None)
        force = force or (self._rate_of_step or (lambda: rate))() is not rate
        self._rate_of_step = lambda: rate  # Keras would track the rate itself
        if self._makes_graphs() and not self.run_eagerly:
            if force or self.train_function is None:
                self.train_function = torch_graph.CompiledSteps(self)
            return self.train_function
        return make_steps(self, "train", self._make_step, force)

    def make_test_function(self, force: bool = False) -> Any:
        make = super().make_test_function
        return make_steps(self, "test", make, force)

    def make_predict_function(self, force: bool = False) -> Any:
        make = super().make_predict_function
        return make_steps(self, "predict", make, force)

    def _make_step(self, force):
        usual = self.jit_compile
        with warnings.catch_warnings():
            # The user didn't ask for it: if layers can't be compiled, Keras doesn't
            # compile.
            warnings.filterwarnings("ignore", "Model doesn't support `jit_compile")
            self.jit_compile = usual or self._compiles_step
        try:
            return super().make_train_function(force)
        finally:
            self.jit_compile = usual

    def _makes_graphs(self):
        """Tell whether PyTorch compiles the whole step."""
        return self.jit_compile and keras.backend.backend() == "torch"

    def _should_torch_compile(self) -> bool:
        # Keras would compile evaluation and prediction layer by layer.
        return False

    if keras.backend.backend() == "tensorflow":
        _maybe_symbolic_build = replicas.build_before_first_step

    def _purge_model_variables(self, **kwargs: Any) -> None:
        """Keep the variables' values until the first step under JAX.

        Keras empties them before, and an error in the first batch would leave them
        empty. Emptying them saves no memory: a compiled step takes the old values'
        memory over.
        """

    @contextlib.contextmanager
    def _usable_after_errors(self) -> Iterator[None]:
        """Restore variables' values when Keras's loop ends in an error.

        Errors from a dataset are raised as `ValueError`, as for arrays.
        """
        self._give_values_back()
        try:
            yield
        except BaseException as error:
            self._give_values_back()
            refused = plain_error(error)
            if refused is None:
                raise
            raise refused from error

    def _give_values_back(self):
        """Write the values that JAX's loop keeps back to the variables.

        `evaluate()` and `predict()` don't do that after an error. Values that
        `train_on_batch()` has kept are older than the variables'.
        """
        if keras.backend.backend() == "jax":
            if any(variable.value.is_deleted() for variable in self.variables):
                self.jax_state_sync()
            self._jax_state = None


def pooler_variables(backbone: Model) -> list[keras.Variable]:
    """List the variables of a backbone's pooler, if it has one."""
    return [] if backbone.pooler is None else backbone.pooler.variables


def global_variables(backbone: Model) -> list[keras.Variable]:
    """List the variables of a backbone's projections of global tokens, if any."""
    layers: list[Any] = getattr(backbone, "global_projections", list)()
    return [variable for layer in layers for variable in layer.variables]
