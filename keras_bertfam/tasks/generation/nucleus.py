"""Draw tokens from the likeliest ones, as `transformers` does."""

import keras
import keras_hub
from keras import ops

from keras_bertfam.types import Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class NucleusSampler(keras_hub.samplers.TopPSampler):
    """Draw from the fewest of the `k` likeliest tokens that reach a share `p` of them.

    KerasHub's sampler takes `p` of the probability of all tokens, and asks for as many
    as `k`. Of 100 equally probable tokens with `p=0.5` and `k=50` it draws from all 50,
    this one from 25, as `transformers` does.

    Args:
        p: float in (0, 1].
        k: int, or `None` for all tokens.
        seed: int or `None`.
        **kwargs: `temperature`.

    Example:

    ```python
    from keras_bertfam.tasks.generation.nucleus import NucleusSampler
    backbone = keras_bertfam.models.GPT2Backbone(50, 1, 2, 16, 24)
    model = keras_bertfam.tasks.CausalLM(backbone)
    model.generate([[1, 2]], max_length=8, sampler=NucleusSampler(0.9, 20, seed=1))
    ```

    Reference: [Holtzman et al., 2019](https://arxiv.org/abs/1904.09751), section 3.1.
    """

    def get_next_token(self, probabilities: Tensor) -> Tensor:
        count = probabilities.shape[-1]
        best, tokens = ops.top_k(probabilities, min(self.k or count, count))
        best = best / ops.sum(best, -1, keepdims=True)
        # For p=.7 and [.5, .3, .2], the sums before are [0, .5, .8]: two are kept.
        kept = ops.cumsum(best, -1) - best < self.p
        chosen = keras.random.categorical(
            ops.log(ops.where(kept, best, 0.0)),
            1,
            seed=self.seed_generator,
            dtype="int32",
        )
        return ops.squeeze(ops.take_along_axis(tokens, chosen, -1), -1)
