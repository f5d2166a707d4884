"""Runs on mixtures of tasks, which are stopped and go on."""

import pytest

from keras_bertfam.callbacks import BackupAndResume
from tests.datasets.test_mixtures import both, make_model
from tests.resume_worker import At, Recorder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text_to_text", "causal_lm"])
def test_a_run_that_is_stopped_goes_on_with_the_next_batch(kind, tmp_path):
    class Interrupt(Exception):
        pass

    def interrupt():
        raise Interrupt

    def train(*callbacks):
        model = make_model(kind)
        model.compile("sgd")
        recorder = Recorder()
        data = model.preprocessor.dataset(both(), 8)
        model.fit(data, epochs=2, callbacks=[*callbacks, recorder], verbose=0)
        return recorder.losses

    whole = train()
    backup = str(tmp_path / "backup")
    with pytest.raises(Interrupt):
        train(BackupAndResume(backup, save_freq=1), At(1, 2, interrupt))
    rest = train(BackupAndResume(backup, save_freq=1))
    assert min(rest)[0] == 1  # what was done is counted, and not trained on
    after = {step: loss for step, loss in whole.items() if step >= (1, 3)}
    assert len(after) == 4 and len({*after.values()}) == 4
    for step, loss in after.items():
        assert rest[step] == pytest.approx(loss, rel=1e-6)
