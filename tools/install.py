"""Install the package and its extras into this environment, by uv where it can.

Usage: python tools/install.py '.[dev]'

uv takes a fifth of pip's time. It reads none of pip's settings, so the registries that
pip is told of are passed on. Under a setting that can't be, pip installs.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PASSED_ON = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
ENVIRONMENT = {
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
# How pip talks, and what it keeps for itself.
OF_PIP_ALONE = {
    *(
        "cache-dir",
        "disable-pip-version-check",
        "no-cache-dir",
        "no-color",
        "no-compile",
    ),
    *("no-input", "no-python-version-warning", "progress-bar", "quiet", "retries"),
    *("root-user-action", "verbose"),
}


def as_uv_is_told(settings: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Translate pip's settings into uv's.

    Args:
        settings: lines of `pip config list`, as `global.index-url='https://...'`. Of
            equal names the last one counts.

    Returns:
        uv's arguments, and variables of its environment.

    Raises:
        ValueError: for a setting that uv can't be told.
    """
    told = {}
    for line in settings:
        key, _, value = line.partition("=")
        told[key.rpartition(".")[2]] = ast.literal_eval(value)
    known = {*PASSED_ON, *ENVIRONMENT, *OF_PIP_ALONE}
    if unknown := sorted({*told} - known):
        raise ValueError(
            f"pip is told of {', '.join(unknown)}, which uv has no name for"
        )
    # pip takes the newest version of all registries.
    arguments = ["--index-strategy", "unsafe-best-match"]
    for name in told.keys() & PASSED_ON:
        for part in told[name].split():
            arguments += [PASSED_ON[name], part]
    return arguments, {
        ENVIRONMENT[name]: told[name] for name in told.keys() & ENVIRONMENT
    }


def install_by_uv(target: str) -> None:
    """Install by uv, or raise a `ValueError` or `subprocess.CalledProcessError`."""
    settings = subprocess.run(
        [*PIP, "config", "list"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    arguments, variables = as_uv_is_told(settings)
    subprocess.run([*PIP, "install", "-qq", "uv"], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    subprocess.run(
        [*uv, "--quiet", *arguments, "--editable", target],
        check=True,
        env={**os.environ, **variables},
    )


def main(target: str) -> None:
    """Install `target` by uv, or by pip where uv fails."""
    try:
        install_by_uv(target)
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"uv can't install this: {error}. pip does, which takes minutes.")
        # Isolated builds, as old ones of seqeval fetch build tools without what these
        # need.
        pip = [*PIP, "install", "-qq", "--use-pep517", "--editable", target]
        sys.exit(subprocess.run(pip).returncode)


if __name__ == "__main__":
    main(sys.argv[1])
