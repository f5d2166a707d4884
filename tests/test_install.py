"""What uv is told of pip's settings, by `tools/install.py`."""

import runpy

import pytest

from tests.checkout import ROOT

as_uv_is_told = runpy.run_path(str(ROOT / "tools" / "install.py"))["as_uv_is_told"]


def test_registries_are_passed_on_and_the_environment_comes_before_files():
    variables = as_uv_is_told(
        [  # sorted, as pip has them
            ":env:.cert='/etc/certificates.pem'",
            ":env:.config-file='/etc/other.conf'",
            ":env:.find-links='/one /two'",
            ":env:.index-url='https://d.example/simple'",
            "download.no-binary=':all:'",
            "global.extra-index-url='https://b.example/simple\\nfile:///c'",
            "global.index-url='https://a.example/simple'",
            "global.timeout='15'",
            "install.no-compile='true'",
            "install.timeout='20'",
        ]
    )
    assert variables == {
        "SSL_CERT_FILE": "/etc/certificates.pem",
        "UV_DEFAULT_INDEX": "https://d.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "UV_HTTP_TIMEOUT": "20",
        "UV_INDEX": "https://b.example/simple file:///c",
    }


def test_what_uv_cannot_be_told_is_refused():
    with pytest.raises(ValueError, match="no-binary, proxy, which uv has no name for"):
        as_uv_is_told(["global.proxy='p'", "install.no-binary=':all:'"])
