"""Messages of commands speak of their options."""

import warnings

import pytest
import typer

from keras_bertfam.cli import screen
from keras_bertfam.cli.app import app
from keras_bertfam.cli.screen import as_options, of_command

pytestmark = pytest.mark.any_backend
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        (
            "pretrain",
            "usually scale with the square root of the batch size, "
            "learning_rate=3.5e-05 in `compile()`; those for SGD, 1e-06.",
            "usually scale with the square root of the batch size, "
            "`--learning-rate 3.5e-05`; those for SGD, 1e-06.",
        ),
        (
            "pretrain",
            "`teacher` must be x. Received: teacher=None, objective='mlm'.",
            "`--teacher` must be x. Received: no --teacher, --objective 'mlm'.",
        ),
        (
            "pretrain",
            "`files` and `backbone`: size=2",
            "`FILES` and `backbone`: --size 2",
        ),
        ("reproduce", "`set` must be a name.", "`--set` must be a name."),
        ("finetune", "`seeds` and `batch_sizes`", "`--seed` and `--batch-size`"),
        ("predict", "`learning_rate`, seed=1", "`learning_rate`, seed=1"),
    ],
)
def test_arguments_are_named_as_options(command, message, expected):
    assert as_options(message) == message
    with of_command(COMMANDS[command]):
        assert as_options(message) == expected


def test_warnings_are_lines_that_name_options_and_no_code():
    with screen.quiet(), of_command(COMMANDS["pretrain"]):
        said = warnings.formatwarning("`learning_rate` is\n  low", UserWarning, "a", 3)
    assert said == "Warning: `--learning-rate` is low\n"
