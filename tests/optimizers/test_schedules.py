import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import optimizers
from keras_bertfam.optimizers import InverseSquareRootDecay, WarmupPolynomialDecay
from tests import tiny_masked_lm as tiny


def rates(schedule, steps):
    return [float(ops.convert_to_numpy(schedule(ops.array(step)))) for step in steps]


@pytest.mark.parametrize(
    ("form", "steps", "expected"),
    [
        ("hold", [0, 5, 9, 10, 15, 20, 25], [0, 0.5, 0.9, 0.5, 0.25, 0, 0]),
        ("product", [0, 5, 9, 10, 15, 20], [0, 0.375, 0.495, 0.5, 0.25, 0]),
        ("join", [0, 5, 9, 10, 15, 20, 25], [0, 0.5, 0.9, 1.0, 0.5, 0, 0]),
    ],
)
def test_published_forms(form, steps, expected):
    schedule = WarmupPolynomialDecay(1.0, 10, 20, form=form)
    np.testing.assert_allclose(rates(schedule, steps), expected, atol=1e-6)


def test_warmup_stable_decay():
    """The peak until the last steps, which fall as 1 - sqrt."""
    schedule = WarmupPolynomialDecay(1.0, 10, 40, form="stable", decay_steps=16)
    expected = [0, 0.5, 1, 1, 1, 0.5, 0.25, 0, 0]
    steps = [0, 5, 10, 20, 24, 28, 33, 40, 50]
    np.testing.assert_allclose(rates(schedule, steps), expected, atol=1e-6)
    share = WarmupPolynomialDecay(1.0, 0, 40, form="stable", decay_steps=0.4)
    np.testing.assert_allclose(rates(share, steps[5:]), expected[5:], atol=1e-6)
    none = WarmupPolynomialDecay(
        2.0, 4, 8, form="stable", decay_steps=0, end_learning_rate=1.0
    )
    assert rates(none, [2, 4, 8, 9]) == [1, 2, 2, 2]
    with pytest.raises(ValueError, match="together. Received: 10 and 31 of 40"):
        WarmupPolynomialDecay(1.0, 10, 40, form="stable", decay_steps=31)
    again = WarmupPolynomialDecay.from_config(schedule.get_config())
    assert again.get_config() == schedule.get_config()


def test_power_and_end_rate():
    schedule = WarmupPolynomialDecay(
        3.0, 4, 12, power=3.0, end_learning_rate=1.0, form="join"
    )
    expected = [0, 1.5, 3, 1 + 2 * 0.5**3, 1, 1]
    np.testing.assert_allclose(
        rates(schedule, [0, 2, 4, 8, 12, 30]), expected, rtol=1e-6
    )


def test_warmup_as_a_share_and_none_at_all():
    share = WarmupPolynomialDecay(1.0, 0.25, 40)
    np.testing.assert_allclose(rates(share, [5, 10]), [0.5, 1], rtol=1e-6)
    assert rates(WarmupPolynomialDecay(1.0, 0, 4), [0, 1]) == [1, 0.75]
    whole = WarmupPolynomialDecay(1.0, 4, 4)
    assert rates(whole, [2, 4]) == [0.5, 1]


def test_shares_of_numpy_and_of_few_steps():
    schedule = WarmupPolynomialDecay(1.0, np.float32(0.1), 100)
    assert rates(schedule, [5, 10]) == pytest.approx([0.5, 1])
    assert WarmupPolynomialDecay(1.0, 0.29, 100)._warmup(100) == 29
    for total in (1, 3, 9):
        short = WarmupPolynomialDecay(1.0, 0.0, total, form="stable")
        assert rates(short, [total - 1, total]) == [1, 0]


def test_total_steps_are_filled_in_once():
    schedule = WarmupPolynomialDecay(1.0, 0)
    with pytest.raises(ValueError, match="total_steps=None"):
        schedule(0)
    schedule.resolve(10)
    schedule.resolve(20)
    assert schedule.total_steps == 10
    assert rates(schedule, [5]) == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peak_learning_rate": 0.0}, "`peak_learning_rate` must be a positive number"),
        ({"end_learning_rate": -1.0}, "end_learning_rate=-1.0"),
        ({"power": 0}, "power=0"),
        ({"form": "linear"}, "form='linear'"),
        ({"warmup_steps": -1}, "`warmup_steps` must be .*-1"),
        ({"warmup_steps": 1.0}, "warmup_steps=1.0"),
        ({"warmup_steps": 5, "total_steps": 4}, "warmup_steps=5, total_steps=4"),
        ({"decay_steps": 1.5}, "decay_steps=1.5"),
        ({"total_steps": 0}, "total_steps=0"),
        ({"total_steps": 2.5}, "`total_steps` must be an int"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupPolynomialDecay(**{"peak_learning_rate": 1.0, **arguments})


def test_config_round_trip():
    schedule = WarmupPolynomialDecay(2.0, 0.1, 50, 3.0, 0.5, "hold", "s")
    config = keras.optimizers.schedules.serialize(schedule)
    other = keras.optimizers.schedules.deserialize(config)
    assert isinstance(other, WarmupPolynomialDecay)
    assert other.get_config() == schedule.get_config()
    unresolved = WarmupPolynomialDecay(2.0)
    assert (
        WarmupPolynomialDecay.from_config(unresolved.get_config()).total_steps is None
    )


@pytest.mark.parametrize("make", ["pretraining", "fine_tuning"])
def test_a_schedule_of_keras_with_accumulation_is_warned_of(make):
    rate = keras.optimizers.schedules.PolynomialDecay(0.1, 10)
    model = [tiny.make_model()] if make == "fine_tuning" else []
    given = getattr(optimizers, f"{make}_optimizer")
    with pytest.warns(UserWarning, match="counts batches, not updates.*takes 4"):
        given(*model, learning_rate=rate, gradient_accumulation_steps=4)


@pytest.mark.any_backend
def test_a_root_with_a_ramp_has_its_peak_after_the_warmup():
    schedule = InverseSquareRootDecay(1e-4, 4000, ramp=True)
    rates = [float(schedule(step)) for step in (0, 1000, 4000, 16_000, 64_000)]
    np.testing.assert_allclose(rates, [0, 2.5e-5, 1e-4, 5e-5, 2.5e-5], rtol=1e-5)
    again = InverseSquareRootDecay.from_config(schedule.get_config())
    assert again.form == "inverse_sqrt" and float(again(1000)) == rates[1]


@pytest.mark.any_backend
@pytest.mark.parametrize("ramp", [False, True])
def test_a_root_of_a_share_of_the_steps(ramp):
    schedule = InverseSquareRootDecay(1e-4, 0.1, ramp=ramp)
    with pytest.raises(
        ValueError, match="steps isn't known, of which warmup_steps=0.1"
    ):
        schedule(1)
    schedule.resolve(1000)
    assert schedule.warmup_steps == 100
    assert float(schedule(100)) == pytest.approx(1e-4 if ramp else 1e-5)
    with pytest.raises(
        ValueError, match="`warmup_steps` must be a positive integer, or"
    ):
        InverseSquareRootDecay(1e-4, 1.5)


@pytest.mark.any_backend
def test_bounds_are_for_shares_alone():
    bounds = {"total_steps": 1000, "warmup_bounds": (100, 200)}
    assert float(WarmupPolynomialDecay(1.0, 10, **bounds)(10)) == 1
    assert float(WarmupPolynomialDecay(1.0, 0.01, **bounds)(10)) == pytest.approx(0.1)
