"""Adam's update in one pass over each variable, where the backend has it."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bertfam.types import Mixin, Tensor


class FusedUpdate(Mixin):
    """Mixin of Adams whose update PyTorch does by one kernel.

    Keras's goes over each variable a dozen times, which was a fifth of a pre-training
    step on a CPU. The other backends' compilers join these passes.
    """

    amsgrad = False
    # Whether all that the update does is to scale rates and decay weights.
    is_adam = True

    def _backend_update_step(
        self, grads: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        if not self._is_fused():
            super()._backend_update_step(grads, variables, learning_rate)
            return
        groups: dict[tuple[float, float], list[Any]] = {}
        for variable, gradient in zip(variables, grads, strict=True):
            rates = self._scale_and_decay(variable)
            groups.setdefault(rates, []).append((variable, gradient))
        for (scale, weight_decay), members in groups.items():
            self._update_group(members, float(learning_rate) * scale, weight_decay)

    def _is_fused(self):
        if keras.backend.backend() != "torch" or self.amsgrad or not self.is_adam:
            return False
        import torch

        return not torch.compiler.is_compiling()  # each count would be compiled

    def _update_group(self, members, rate, weight_decay):
        import torch
        from torch.optim.adamw import adamw

        updates, epsilon = self._as_torch_counts(int(self.iterations))
        indices = [self._get_variable_index(variable) for variable, _ in members]
        values = [variable.value for variable, _ in members]
        # A number for each, which the update counts on; filled without a copy, for
        # which a GPU would be waited for.
        counts = torch.full((len(values),), updates, device=values[0].device)
        with torch.no_grad():
            adamw(
                values,
                [gradient.to(variable.value.dtype) for variable, gradient in members],
                [self._momentums[index].value for index in indices],
                [self._velocities[index].value for index in indices],
                [],
                [*counts.unbind()],
                fused=True,
                amsgrad=False,
                beta1=self.beta_1,
                beta2=self.beta_2,
                lr=rate,
                weight_decay=weight_decay,
                eps=epsilon,
                maximize=False,
            )

    def _as_torch_counts(self, updates: int) -> tuple[float, float]:
        """Give the count of updates, and epsilon for the corrected second moment."""
        # Keras has it beside the raw one.
        corrected = (1 - self.beta_2 ** (updates + 1)) ** 0.5
        return float(updates), self.epsilon / corrected

    def _scale_and_decay(self, variable: Any) -> tuple[float, float]:
        """Give the factor of a variable's rate, and its weight decay in the update.

        Keras's own decay comes before the update.
        """
        return 1.0, 0.0
