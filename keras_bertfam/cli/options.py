"""Options of a command line that are the settings of a pre-training run."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from keras_bertfam.cli.combinations import check_effects
from keras_bertfam.cli.recipes import RECIPES, with_recipe
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.cli.wording import as_options, of_command


def takes_a_run(function: Callable[[PretrainingRun], Any], **defaults: Any) -> Any:
    """A function for typer with an option for each setting of a run.

    `--config` reads settings from a file, and `--recipe` has some by a name; options
    given beside them take their place.

    Args:
        function: takes a `PretrainingRun`. Its docstring is the command's help.
        **defaults: settings that differ from those of `PretrainingRun`.

    Returns:
        A function for `typer.run` or `app.command()`.
    """

    def command(context: typer.Context, **options: Any) -> Any:
        with of_command(context.command):
            try:
                run = _run(options, defaults)
            except (ValueError, OSError) as error:
                raise typer.BadParameter(as_options(str(error))) from error
            return function(run)

    parameters = [*_parameters(defaults)]
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    # What typer reads. Options are `None` unless given: a file may have them.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _run(options, defaults):
    """The run of options that are `None`, or no files, unless they are given."""
    given = {n: v for n, v in options.items() if v is not None and v != []}
    config, recipe = given.pop("config", None), given.pop("recipe", None)
    if config is None:
        settings = {**defaults, **with_recipe(recipe or "published", given)}
        run = PretrainingRun(**settings)
    elif recipe is None:
        run = PretrainingRun.read(config, **given)
    else:
        raise ValueError(
            "`recipe` must be left out with a `config`, which has all settings. "
            f"Received: {recipe!r}."
        )
    check_effects(run, given)
    return run


def _parameters(defaults):
    yield inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )
    config = typer.Option(help="File of settings, such as run.yaml beside a preset.")
    recipe = typer.Option(help=f"Settings by name: {', '.join(RECIPES)}.")
    kinds = typing.get_type_hints(PretrainingRun)
    for field in dataclasses.fields(PretrainingRun):
        kind, text = kinds[field.name], field.metadata["help"]
        if typing.get_origin(kind) is dict:
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


def _optional(name, kind, info):
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, info],
    )
