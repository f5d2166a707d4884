"""Adam's update in one pass over each variable, where the backend has it."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_bertfam.types import Mixin, Tensor


class FusedUpdate(Mixin):
    """Mixin of Adams whose update PyTorch does by one kernel.

    Keras's goes over each variable a dozen times, which was a fifth of a pre-training
    step on a CPU. The other backends' compilers join these passes.
    """

    amsgrad = False

    def _backend_update_step(
        self, grads: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        groups = self._groups(variables)
        if keras.backend.backend() != "torch" or self.amsgrad or groups is None:
            super()._backend_update_step(grads, variables, learning_rate)
            return
        import torch
        from torch.optim.adamw import adamw

        updates, epsilon = self._as_torch_counts(int(self.iterations))
        gradients = {id(v): grad for v, grad in zip(variables, grads, strict=True)}
        indices = {id(v): self._get_variable_index(v) for v in variables}
        for (scale, weight_decay), members in groups.items():
            own = [v.value for v in members]
            with torch.no_grad():
                adamw(
                    own,
                    [gradients[id(v)].to(v.value.dtype) for v in members],
                    [self._momentums[indices[id(v)]].value for v in members],
                    [self._velocities[indices[id(v)]].value for v in members],
                    [],
                    [torch.tensor(updates, device=value.device) for value in own],
                    fused=True,
                    amsgrad=False,
                    beta1=self.beta_1,
                    beta2=self.beta_2,
                    lr=float(learning_rate) * scale,
                    weight_decay=weight_decay,
                    eps=epsilon,
                    maximize=False,
                )

    def _as_torch_counts(self, updates: int) -> tuple[float, float]:
        """The updates so far, and the epsilon beside the corrected second moment."""
        # Keras has it beside the raw one.
        corrected = (1 - self.beta_2 ** (updates + 1)) ** 0.5
        return float(updates), self.epsilon / corrected

    def _groups(self, variables: Iterable[Any]) -> Any:
        """Variables by what scales their rates, and by their weight decay.

        Returns:
            Dict from pairs of floats to lists of variables, or `None`: not fused.
        """
        return {(1.0, 0.0): list(variables)}
