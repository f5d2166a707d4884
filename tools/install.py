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
# uv's variables, as arguments could be read off the list of processes, and what parts
# of them are separated by: a registry's address may have a password.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
# How pip talks, and what it keeps for itself.
OF_PIP_ALONE = """
    cache-dir config-file disable-pip-version-check no-cache-dir no-color no-compile
    no-input no-python-version-warning progress-bar quiet retries root-user-action
    verbose
""".split()
# Of `pip install`, the one that counts last.
SECTIONS = ("global", "install", ":env:")


def as_uv_is_told(settings: Iterable[str]) -> dict[str, str]:
    """Translate pip's settings into variables of uv's environment.

    Args:
        settings: lines of `pip config list`, as `global.index-url='https://...'`.

    Raises:
        ValueError: for a setting that uv can't be told.
    """
    told: dict[str, str] = {}
    lines = [line.partition("=") for line in settings]
    for section in SECTIONS:
        for key, _, value in lines:
            if key.rpartition(".")[0] == section:
                told[key.rpartition(".")[2]] = ast.literal_eval(value)
    if unknown := sorted({*told} - {*VARIABLES, *OF_PIP_ALONE}):
        raise ValueError(
            f"pip is told of {', '.join(unknown)}, which uv has no name for"
        )
    found = {}
    for name in told.keys() & VARIABLES:
        variable, between = VARIABLES[name]
        found[variable] = between.join(told[name].split())
    return found


def install_by_uv(target: str) -> None:
    """Install by uv, or raise a `ValueError` or `subprocess.CalledProcessError`."""
    settings = subprocess.run(
        [*PIP, "config", "list"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    variables = as_uv_is_told(settings)
    subprocess.run([*PIP, "install", "-qq", "uv"], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    # pip takes the newest version of all registries.
    newest = ["--index-strategy", "unsafe-best-match"]
    subprocess.run(
        [*uv, "--quiet", *newest, "--editable", target],
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
