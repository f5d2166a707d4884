"""What uv is told of pip's settings, by `tools/install.py`."""

import runpy

import pytest

from tests.checkout import ROOT

as_uv_is_told = runpy.run_path(str(ROOT / "tools" / "install.py"))["as_uv_is_told"]


def test_registries_are_passed_on_and_the_last_setting_counts():
    arguments, variables = as_uv_is_told(
        [
            "global.index-url='https://a.example/simple'",
            "global.extra-index-url='https://b.example/simple\\nfile:///c'",
            ":env:.index-url='https://d.example/simple'",
            ":env:.cert='/etc/certificates.pem'",
            "install.no-compile='true'",
        ]
    )
    pairs = {*zip(arguments[::2], arguments[1::2], strict=True)}
    assert pairs == {
        ("--index-strategy", "unsafe-best-match"),
        ("--default-index", "https://d.example/simple"),
        ("--index", "https://b.example/simple"),
        ("--index", "file:///c"),
    }
    assert variables == {"SSL_CERT_FILE": "/etc/certificates.pem"}


def test_what_uv_cannot_be_told_is_refused():
    with pytest.raises(ValueError, match="no-binary, proxy, which uv has no name for"):
        as_uv_is_told(["global.proxy='p'", "install.no-binary=':all:'"])
