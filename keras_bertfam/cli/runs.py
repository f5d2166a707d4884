"""Read the settings of a pre-training run from options or a file, and write them."""

import contextlib
import dataclasses
import difflib
import itertools
import os
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.cli.clusters import BACKENDS
from keras_bertfam.cli.combinations import check_together, trunk_of
from keras_bertfam.number_ranges import check_number
from keras_bertfam.presets.checkpoints.source import TOKENIZERS as GIVEN
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES, strategies
from keras_bertfam.presets.families.parts.recipes import PretrainingRecipe
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH
from keras_bertfam.types import Config, Path
from keras_bertfam.version import __version__
from keras_bertfam.whole_files import write_text

FILE_NAME = "run.yaml"
# The precision that `pretrain` replaces by float32 or bfloat16.
AUTO = "auto"
PRECISIONS = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
RECOMPUTED = ("none", "attention", "block")
TOKENIZERS = ("word_piece", "byte_pair", "sentence_piece")
# The settings that learning a vocabulary reads.
VOCABULARY = (
    "files output family objective tokenizer vocabulary_size cased mix_exponent "
    "one_per_file feature encoding max_line_length"
).split()
# Layers and width of BERT's miniatures; any family can be made in these sizes.
SHAPES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


def families() -> list[str]:
    """List the families that are pre-trained by one of the objectives here."""
    tasks = {objective.task for objective in OBJECTIVES.values()}
    recipes = {name: record.pretraining for name, record in FAMILIES.items()}
    return sorted(n for n, each in recipes.items() if each and each[""].task in tasks)


def _listed(names: Iterable[str]) -> str:
    """Join names for the help of an option: "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _described(objective: str) -> str:
    what = OBJECTIVES[objective].what
    return f"{objective} ({what})" if what else objective


def _setting(default: Any, description: str) -> Any:
    """Make a field whose metadata holds the help of its option."""
    metadata = {"help": description}
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass
class PretrainingRun:
    """Hold all settings of a pre-training run.

    `None` stands for the family's published value. The fields' own descriptions are the
    help of the options of the same names.
    """

    files: tuple[str, ...] = _setting(
        (), "Text files with blank lines between documents, or a prepared corpus."
    )
    output: str = _setting("", "Preset folder to write.")
    family: str = _setting("bert", f"{_listed(families())}.")
    objective: str | None = _setting(
        None, f"{_listed(map(_described, OBJECTIVES))}. Default: the family's."
    )
    size: str | None = _setting(
        None, f"{', '.join(SHAPES)} or a published name. Default: mini."
    )
    preset: str | None = _setting(
        None,
        "Preset to train further, in place of new weights; the objective "
        "is then mlm by default.",
    )
    new_words: int = _setting(
        0, "With --preset: add at most this many words of the text to its vocabulary."
    )
    teacher: str | None = _setting(None, "Preset to distil from.")
    tokenizer: str | None = _setting(
        None,
        f"{_listed(TOKENIZERS)} to learn, or {GIVEN}.",
    )
    vocabulary_size: int = _setting(8000, "The most tokens of a vocabulary to learn.")
    cased: bool | None = _setting(None, "Keep case and accents.")
    mix_exponent: float | None = _setting(
        None,
        "Mix languages: FILES are LANGUAGE=FILES, and each language is drawn by this "
        "power of its share of the text. BERT used .7, XLM-R .3. Two files of de+is= "
        "are translations, line by line.",
    )
    text_share: float = _setting(
        1.0, "Share of the documents to train on. The vocabulary is learned from all."
    )
    one_per_file: bool = _setting(False, "Read each file as one document.")
    feature: str = _setting("text", "Field or column that holds the text.")
    encoding: str = _setting("utf-8", "Encoding of the files.")
    max_line_length: int = _setting(
        MAX_LINE_LENGTH, "The most characters a line may have."
    )
    validation: tuple[str, ...] = _setting(
        (), "Text files to validate on. With --mix-exponent also LANGUAGE=FILES."
    )
    sequence_length: int = _setting(128, "Tokens in a row.")
    packing: str | None = _setting(
        None,
        "How rows are filled. best_fit: several documents, or pairs, "
        "share a row and don't attend to each other.",
    )
    batch_size: int = _setting(64, "Rows in a batch.")
    accumulate: int = _setting(1, "Batches in a step.")
    epochs: int = _setting(10, "Passes over the text.")
    steps_per_epoch: int | None = _setting(
        None, "Batches in an epoch. Default: one pass over the text."
    )
    learning_rate: float | None = _setting(None, "Peak of the learning rate.")
    warmup_steps: float | None = _setting(
        None, "Steps of warm-up; below 1, their share of all steps."
    )
    strategy: str | None = _setting(None, f"What to mask: {_listed(strategies())}.")
    precision: str = _setting(
        "float32",
        f"Number format of the computation: {_listed([*PRECISIONS, AUTO])}. auto: "
        "bfloat16 where it is sure to be faster, else float32.",
    )
    jit_compile: bool | None = _setting(
        None, "Compile the step with XLA, or with PyTorch's compiler."
    )
    rematerialize: str = _setting(
        "none",
        f"What the gradient computes again to save memory: {_listed(RECOMPUTED)}.",
    )
    seed: int = _setting(0, "Seed of weights, order and masks.")
    tensorboard: str | None = _setting(None, "Folder for TensorBoard's logs.")
    checkpoints: int = _setting(
        0, "Keep the presets of this many last epochs, and of the best one."
    )
    distribution: str | None = _setting(
        None,
        f"How devices share each batch: {_listed(BACKENDS)}. multi_worker uses the "
        "processes named in TF_CONFIG. The others use JAX's devices; jax_sharded also "
        "splits the weights.",
    )
    model_parallel: int = _setting(
        1, "With jax: how many devices split the weights between them."
    )
    resume: bool = _setting(False, "Continue a run that was killed, if there is one.")
    phases: list[Config] = _setting(
        [], "Arguments of each `keras_bertfam.tasks.Phase`, in order."
    )
    backbone_arguments: Config = _setting({}, "Other arguments of the backbone.")
    preprocessor_arguments: Config = _setting({}, "Arguments of the preprocessor.")
    dataset_arguments: Config = _setting(
        {}, "Arguments of the preprocessor's `dataset`."
    )
    task_arguments: Config = _setting({}, "Arguments of the task.")
    optimizer_arguments: Config = _setting(
        {}, "Arguments of `keras_bertfam.optimizers.pretraining_optimizer`."
    )

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(type(self)).items():
            setattr(self, name, as_field_type(name, kind, getattr(self, name)))
        # A shell adds a slash to a folder's name.
        self.output = self.output.rstrip(os.sep) or self.output
        check_choice("family", self.family, families())
        if self.objective is not None:
            check_choice("objective", self.objective, OBJECTIVES)
        check_choice("precision", self.precision, (*PRECISIONS, AUTO))
        check_choice("rematerialize", self.rematerialize, RECOMPUTED)
        check_choice("distribution", self.distribution, (None, *BACKENDS))
        check_choice("strategy", self.strategy, (None, *strategies()))
        exponent = self.mix_exponent
        if exponent is not None:
            check_number("mix_exponent", exponent, 0.0, 1.0)
            told = [*by_language(self.files), *(self.validation_by_language() or ())]
            if any(len(languages_of(name)) > 1 for name in told):
                self.packing = self.packing or "translations"
                check_choice("packing", self.packing, ["translations"])
            if languages := self.languages():
                self.packing = self.packing or "translations"
                check_languages(self, languages)
        packings = OBJECTIVES[self.objective_name].packings
        check_choice("packing", self.packing, (None, *packings))
        least = {"accumulate": 1, "batch_size": 1, "epochs": 1, "sequence_length": 3}
        least |= {"checkpoints": 0, "model_parallel": 1, "new_words": 0, "seed": 0}
        if self.steps_per_epoch is not None:
            least["steps_per_epoch"] = 1
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(
                    f"`{name}` must be at least {bound}. "
                    f"Received: {getattr(self, name)}."
                )
        if not 0 < self.text_share <= 1:
            raise ValueError(
                f"`text_share` must be in (0, 1]. Received: {self.text_share}."
            )
        if self.seed >= 1 << 32:
            raise ValueError(f"`seed` must be below 2**32. Received: {self.seed}.")
        if self.warmup_steps is not None and self.warmup_steps >= 1:
            if float(self.warmup_steps).is_integer():  # options are floats
                self.warmup_steps = int(self.warmup_steps)
        check_together(self)

    @property
    def prepared(self) -> list[str]:
        """list of str: the prepared corpora, which are the folders among the files."""
        return [file for file in self.paths() if os.path.isdir(file)]

    def paths(self) -> list[str]:
        """List the paths and patterns of the files, without their languages."""
        if self.mix_exponent is None:
            return [*self.files]
        return [path for each in by_language(self.files).values() for path in each]

    def validation_by_language(self) -> dict[str, list[str]] | None:
        """Group the files to validate on by language; `None` if they have none."""
        # A folder of a path may have "=" in its name, too.
        told = any("=" in file.partition("/")[0] for file in self.validation)
        if self.mix_exponent is None or not told:
            return None
        return by_language(self.validation, "validation")

    def validation_paths(self) -> list[str]:
        """List the paths and patterns to validate on, without their languages."""
        told = self.validation_by_language()
        if told is None:
            return [*self.validation]
        return [path for each in told.values() for path in each]

    def languages(self) -> list[str] | None:
        """List the languages of which a new encoder has vectors, if any, as XLM."""
        if self.mix_exponent is None or self.preset or self.objective_name != "mlm":
            return None
        size = FAMILIES[self.family].sizes[self.published_size()[0]]
        if not size.arguments.get("num_languages"):
            return None
        names = (languages_of(name) for name in by_language(self.files))
        return list(dict.fromkeys(itertools.chain.from_iterable(names)))

    def learns_vocabulary(self) -> bool:
        """Tell whether a tokenizer is to be learned, rather than loaded."""
        return self.tokenizer is None or self.tokenizer in TOKENIZERS

    @property
    def recipe(self) -> PretrainingRecipe:
        """How the family was pre-trained, in the size that is asked for."""
        recipes = FAMILIES[self.family].pretraining
        return recipes.get(self.published_size()[0], recipes[""])

    @property
    def objective_name(self) -> str:
        """The objective that was given, or else the family's."""
        if self.objective is not None or self.preset is not None:
            return self.objective or "mlm"
        recipe = self.recipe
        said = {**recipe.masking, **recipe.task_arguments}.items()
        return next(
            name
            for name, objective in OBJECTIVES.items()
            if objective.task == recipe.task and objective.arguments.items() <= said
        )

    def published_size(self) -> tuple[str, Config]:
        """Find a published name, and arguments that turn it into the wanted size."""
        sizes = FAMILIES[self.family].sizes
        asked = self.size or "mini"
        if asked in sizes:
            return asked, {}
        named = [name for name in sizes if f"_{asked}_" in name]
        if named:
            return named[0], {}
        check_choice("size", asked, [*SHAPES, *sizes])
        layers, width = SHAPES[asked]
        shape = {
            "num_layers": layers,
            "num_heads": width // 64,
            "hidden_dim": width,
            "intermediate_dim": 4 * width,
        }
        return next(iter(sizes)), shape

    def longest_row(self) -> int | None:
        """Tell how many positions a new encoder has; `None` for any number."""
        name, shape = self.published_size()
        record = FAMILIES[self.family]
        if trunk_of(record.pretraining[""].task) == "PermutationLM":
            return None
        known = {"max_sequence_length": 512, **record.arguments}
        known |= record.sizes[name].arguments
        longest = {**known, **shape, **self.backbone_arguments}["max_sequence_length"]
        if longest is not None:
            check_number("max_sequence_length", longest, 1)
        return longest

    def changed(self, **changes: Any) -> "PretrainingRun":
        """Copy the run with some changes."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def read(cls, path: Path, **changes: Any) -> "PretrainingRun":
        """Read settings that `write` or a user wrote; a file may name a `recipe`.

        Args:
            path: of the file.
            **changes: settings that take the place of the file's.

        Raises:
            ValueError: for a file that isn't YAML, or with an unknown setting or a
                value of another type.
        """
        settings = parsing.read_yaml(path)
        if not isinstance(settings, Mapping):
            raise ValueError(
                f"{path!s} must have settings, such as `epochs: 3`. "
                f"Received: {settings!r}."
            )
        settings = dict(settings)
        recipe = settings.pop("recipe", "published")
        return cls.of(merged(with_recipe(recipe, settings), changes), f"in {path!s}")

    @classmethod
    def of(cls, settings: Config, where: str) -> "PretrainingRun":
        """Make a run of settings by their names.

        Args:
            settings: dict.
            where: str, for the message: where the settings stand.

        Raises:
            ValueError: for an unknown setting or a value of another type.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                raise ValueError(
                    f"A setting {where} must be one of {known}. Received: "
                    f"{name!r}{''.join(f'; the nearest is {n!r}' for n in near)}."
                )
        return cls(**settings)

    def write(self, path: Path) -> None:
        """Write the settings as YAML, so that the run can be repeated.

        Args:
            path: of the file. It appears under its name once it is complete.
        """
        settings = dataclasses.asdict(self)
        del settings["resume"]  # says how a run began, not what it does
        settings = {n: [*v] if isinstance(v, tuple) else v for n, v in settings.items()}
        text = parsing.to_yaml(settings)
        head = f"# keras_bertfam {__version__}: pretrain --config {FILE_NAME}\n"
        write_text(path, head + text)


# Published settings are for days on accelerators. `quick` has the settings, of those
# tried, that taught the most in minutes on two cores (BENCHMARKS.md, "Learned per
# minute"). It leaves positions from 64 on untrained.
_QUICK: Config = {
    "sequence_length": 64,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "warmup_steps": 0.1,
    "backbone_arguments": {"dropout": 0.0},
    # The decay starts at the peak. BERT's own schedule starts it below.
    "optimizer_arguments": {"schedule_form": "join"},
}
RECIPES: dict[str, Config] = {
    "published": {},
    "quick": _QUICK,
    # For PyTorch in bfloat16, where Muon's products take little of a step. They take
    # more of it than they gain in TensorFlow on two cores.
    "quick_muon": {
        **_QUICK,
        "learning_rate": 2e-3,
        "optimizer_arguments": {"schedule_form": "join", "optimizer": "muon"},
    },
}


def with_recipe(name: str, given: Config) -> Config:
    """Give the settings of a recipe, with given ones in place of its own.

    Args:
        name: str, a key of `RECIPES`.
        given: dict. A value that is a dict replaces only the keys it has.

    Raises:
        ValueError: for an unknown name.
    """
    check_choice("recipe", name, [*RECIPES])
    return merged(RECIPES[name], given)


def merged(*parts: Config) -> Config:
    """Merge settings of runs; later ones replace earlier ones.

    Args:
        *parts: dicts. A value that is a dict replaces only the keys it has: `{"a":
            {"x": 1, "y": 2}}` and `{"a": {"y": 3}}` give `{"a": {"x": 1, "y": 3}}`.
    """
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            both = isinstance(value, dict) and isinstance(found.get(name), dict)
            found[name] = {**found[name], **value} if both else value
    return found


def by_language(files: Iterable[str], argument: str = "files") -> dict[str, list[str]]:
    """Group `LANGUAGE=FILES` by language.

    Args:
        files: strings. Several may have the same language.
        argument: name of the setting, for messages.

    Raises:
        ValueError: for a string without a language or files, and for two languages
            without as many.
    """
    found: dict[str, list[str]] = {}
    for file in files:
        name, _, path = file.partition("=")
        if not name or not path:
            raise ValueError(
                f"`{argument}` must each be LANGUAGE=FILES with a `mix_exponent`, such "
                f"as de=texts/de/*.txt. Received: {file!r}."
            )
        found.setdefault(name, []).append(path)
    for name, paths in found.items():
        languages = languages_of(name)
        if (
            not all(languages)
            or len(languages) > 2
            or len(languages) == 2 != len(paths)
        ):
            raise ValueError(
                f"`{argument}` of two languages must be one each of either, in order, "
                "such as de+is=texts.de de+is=texts.is. "
                f"Received: {[f'{name}={path}' for path in paths]}."
            )
    return found


def languages_of(name: str) -> list[str]:
    """List the languages of a corpus, two if they are translations of each other."""
    return name.split("+")


def check_languages(run: PretrainingRun, known: Collection[str] | None) -> None:
    """Raise a `ValueError` for text of which an encoder wouldn't learn the language.

    Args:
        run: `PretrainingRun`.
        known: languages of the rows, which have a vector each; `None` for none.
    """
    if known is None:
        return
    told = {"files": None, "validation": run.validation_by_language()}
    if run.mix_exponent is not None:
        told["files"] = by_language(run.files)
    for argument, groups in told.items():
        files = [*getattr(run, argument)]
        names = (n for group in groups or () for n in languages_of(group))
        if files and (groups is None or not {*names} <= {*known}):
            raise ValueError(
                f"`{argument}` must each be LANGUAGE=FILES, with a `mix_exponent`, of "
                f"the languages that rows have, {[*known]}. Received: {files}."
            )


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise a `ValueError` for a value that isn't one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {[*choices]}. Received: {value!r}.")


def as_field_type(name: str, kind: Any, value: Any) -> Any:
    """Convert a value to its field's type, such as a list to a tuple.

    Args:
        name: of the setting.
        kind: type of the field, or a union of it and `None`.
        value: what is given.

    Raises:
        ValueError: for a value of another type.
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    wanted = typing.get_origin(kinds[0]) or kinds[0]
    if value is None and type(None) in kinds:
        return None
    if wanted is tuple:
        value = (value,) if isinstance(value, str) else value
        if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return tuple(value)
    elif wanted is float and isinstance(value, (str, int)):
        with contextlib.suppress(ValueError):
            return float(value)
    elif isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    what = "a list of strings" if wanted is tuple else wanted.__name__
    raise ValueError(f"`{name}` must be of type {what}. Received: {value!r}.")
