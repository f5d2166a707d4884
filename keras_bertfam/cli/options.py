"""Make the options of a command from the settings of a pre-training run."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import typer

from keras_bertfam import parsing
from keras_bertfam.cli.combinations import check_effects, check_mask_rate
from keras_bertfam.cli.runs import RECIPES, PretrainingRun, with_recipe
from keras_bertfam.cli.screen import as_options, of_command
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.types import Config

_GROUPS = ("backbone", "preprocessor", "dataset", "task", "optimizer")


def takes_a_run(
    function: Callable[[PretrainingRun], Any],
    only: Collection[str] | None = None,
    fixed: Config | None = None,
    task: str | None = None,
    **defaults: Any,
) -> Any:
    """Make a function for typer with an option for each setting of a run.

    `--config` reads settings from a file, and `--recipe` names a set of them. Options
    given beside these two replace their values. `--set` gives arguments of classes.

    Args:
        function: takes a `PretrainingRun`. Its docstring is the command's help.
        only: names of the settings that get an option; there is then no `--config`,
            `--recipe` or `--set`. `None` for all settings.
        fixed: settings that the function has one value for. They get no option, and a
            file of settings that has another value is refused.
        task: name of the task that the objective must have; `None` for any.
        **defaults: settings that differ from those of `PretrainingRun`.

    Returns:
        A function for `typer.run` or `app.command()`.
    """

    fixed = fixed or {}

    def command(context: typer.Context | None, **options: Any) -> Any:
        # Python code calls it without a context.
        with of_command(context and context.command):
            try:
                run = _run(options, defaults, fixed)
                _check_task(run, task)
            except (ValueError, TypeError, OSError) as error:
                raise typer.BadParameter(as_options(str(error))) from error
            return function(run)

    parameters = [
        each
        for each in _parameters(defaults)
        if each.name not in fixed and (only is None or each.name in ("context", *only))
    ]
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    # typer reads the signature. An option that isn't given is `None`, so that a file's
    # value stays.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _check_task(run, task):
    """Refuse a run whose objective another task has."""
    if task is not None and OBJECTIVES[run.objective_name].task != task:
        known = [name for name, each in OBJECTIVES.items() if each.task == task]
        raise ValueError(
            f"`objective` must be one of {known} here. Received: "
            f"{run.objective_name!r}, of family={run.family!r}."
        )


def _check_fixed(settings, fixed):
    """Refuse another value of a setting that can't be chosen."""
    usual = {field.name: field.default for field in dataclasses.fields(PretrainingRun)}
    for name, value in fixed.items():
        if settings.get(name, value) not in (value, usual[name]):
            raise ValueError(
                f"`{name}` must be {value!r} or left out here. "
                f"Received: {settings[name]!r}."
            )


def _run(options, defaults, fixed):
    """Make a run from options; those that aren't given are `None` or empty."""
    given = {n: v for n, v in options.items() if v is not None and v != []}
    config, recipe = given.pop("config", None), given.pop("recipe", None)
    arguments = _arguments(given.pop("arguments", ()))
    rate = given.pop("mask_rate", None)
    if rate is not None:
        to_mask = arguments.setdefault("preprocessor_arguments", {})
        if "mask_selection_rate" in to_mask:
            raise ValueError(
                "`mask_rate` must be left out with preprocessor.mask_selection_rate. "
                f"Received: {rate}."
            )
        to_mask["mask_selection_rate"] = rate
    asked, given = given, given | arguments
    _check_fixed(given, fixed)
    given |= fixed
    if config is None:
        settings = {**defaults, **with_recipe(recipe or "published", given)}
        run = PretrainingRun(**settings)
    elif recipe is None:
        said = parsing.read_yaml(config)
        if isinstance(said, Mapping):
            _check_fixed(said, fixed)
        run = PretrainingRun.read(config, **given)
    else:
        raise ValueError(
            "`recipe` must be left out with a `config`, which holds all settings. "
            f"Received: {recipe!r}."
        )
    check_effects(run, asked)
    check_mask_rate(run, rate)
    return run


def _arguments(texts):
    """Make the settings that are dicts, from texts such as `preprocessor.seed=1`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = as_setting(text)
        group, _, argument = name.partition(".")
        if group not in _GROUPS or not argument.isidentifier():
            raise ValueError(
                "`set` must name an argument of "
                f"{', '.join(_GROUPS[:-1])} or {_GROUPS[-1]}, as in "
                f"preprocessor.mask_token_rate=1. Received: {text!r}."
            )
        found.setdefault(f"{group}_arguments", {})[argument] = value
    return found


def as_setting(text: str) -> tuple[str, Any]:
    """Split a text such as `size=base` into a name and its value.

    Raises:
        ValueError: for a text without `=`, or a value that isn't YAML.
    """
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(
            "`set` must be a name, = and a value, such as size=base. "
            f"Received: {text!r}."
        )
    try:
        return name.strip(), parsing.parse_yaml(value)
    except ValueError as error:
        raise ValueError(f"`set` must have YAML after {name!r}=. {error}.") from error


def _parameters(defaults):
    yield inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )
    config = typer.Option(
        help="File of settings, such as the run.yaml in a preset's folder."
    )
    recipe = typer.Option(help=f"Named settings: {', '.join(RECIPES)}.")
    kinds = typing.get_type_hints(PretrainingRun)
    for field in dataclasses.fields(PretrainingRun):
        kind, text = kinds[field.name], field.metadata["help"]
        if typing.get_origin(kind) in (dict, list):
            continue  # for files only
        default = defaults.get(field.name, field.default)
        if isinstance(default, (str, int, float)) and str(default) and default != 0:
            text = f"{text} Default: {default}."
        if typing.get_origin(kind) is tuple:
            kind = list[str]
        settings = typer.Argument if field.name == "files" else typer.Option
        yield _optional(field.name, kind | None, settings(help=text))
    yield _optional("config", str | None, config)
    yield _optional("recipe", str | None, recipe)
    rate = typer.Option(min=0, max=1, help="Share of the tokens to mask.")
    yield _optional("mask_rate", float | None, rate)
    arguments = typer.Option(
        "--set",
        help=f"Argument of {', '.join(_GROUPS)}, such as "
        "preprocessor.mask_token_rate=1. May be repeated.",
    )
    yield _optional("arguments", list[str] | None, arguments)


def _optional(name, kind, info):
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, info],
    )
