import dataclasses

import numpy as np
import pytest

from keras_bertfam.analysis import entities
from keras_bertfam.analysis.probes.data import arcs
from keras_bertfam.analysis.probes.report import (
    ProbeReport,
    center_of_gravity,
    expected_layer,
)

pytestmark = pytest.mark.any_backend


def test_golden():
    assert expected_layer([0.5, 0.7, 0.8, 0.8]) == pytest.approx(4 / 3)
    assert center_of_gravity([0.1, 0.2, 0.3, 0.4]) == pytest.approx(2)
    shares = np.array([[0.1, 0.2, 0.3, 0.4]])
    report = ProbeReport("accuracy", True, shares, None, shares)
    assert report.mix_divergence == pytest.approx(0.153561, abs=1e-6)


def test_losses_count_as_negative_gains():
    assert expected_layer([0.5, 0.9, 0.7]) == pytest.approx((0.4 - 0.4) / 0.2)
    assert np.isnan(expected_layer([0.5, 0.5]))


def test_report(tmp_path):
    scores = np.array([[0.5, 0.7, 0.8], [0.7, 0.7, 0.8]])
    weights = np.array([[0.5, 0.5], [0.5, 0.5]])
    report = ProbeReport(
        "accuracy", False, scores, scores - 0.25, weights, 10 / scores, None, 20.0, 0.3
    )
    assert report.probes == ["0", "1", "mix"] and report.expected_layer is None
    np.testing.assert_allclose(report.selectivity, 0.25)
    np.testing.assert_allclose(report.compression, 2 * scores)
    title, header, first, *_ = str(report).splitlines()
    assert "2 seed(s); center of gravity 0.50, 0.3 of the most frequent label" in title
    other = dataclasses.replace(report, metric="macro_f1")
    assert "0.50, accuracy 0.3 of the most frequent label" in other.title
    columns = "probe accuracy deviation control selectivity bits compression"
    assert header.split() == columns.split()
    values = ["0", "0.6", "0.1414", "0.35", "0.25", "17.14", "1.2"]
    assert first.split() == values
    report.plot(tmp_path / "probe.png")
    assert (tmp_path / "probe.png").read_bytes().startswith(b"\x89PNG")


def test_arcs():
    heads, relations = [[2, 0, 2], []], [["nsubj", "root", "obj"], []]
    assert arcs(heads, relations) == [[(0, 1, "nsubj"), (2, 1, "obj")], []]
    [pairs, _] = arcs(heads)
    assert pairs == [(0, 1, "arc"), (0, 2, "none"), (2, 1, "arc"), (2, 0, "none")]
    assert arcs([["2", "0"]]) == [[(0, 1, "arc")]]  # there is no other word
    with pytest.raises(ValueError, match=r"`heads` .* row 1: \[3, 0\]"):
        arcs([[0], [3, 0]])
    with pytest.raises(ValueError, match=r"`heads` .* row 0: \['_'\]"):
        arcs([["_"]])
    with pytest.raises(ValueError, match="`relations`"):
        arcs([[0]], [[]])


def test_entities():
    tags = ["B-person", "I-person", "O", "B-group", "B-group"]
    expected = [((0, 2), "person"), ((3, 4), "group"), ((4, 5), "group")]
    assert entities([tags, ["O"]]) == [expected, []]
