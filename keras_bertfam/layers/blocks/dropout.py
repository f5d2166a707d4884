"""Dropout whose random bits come from a counter-based hash."""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Shape, Tensor

_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)
_SEED_STRIDES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)


def _bits_dtype():
    # PyTorch has no arithmetic on uint32; TensorFlow runs int32 on the host.
    return "int32" if keras.backend.backend() == "torch" else "uint32"


def _constant(value):
    return ops.convert_to_tensor(np.uint32(value).view(_bits_dtype()))


def _shift(x, bits):
    # The mask makes the arithmetic shift of a signed integer a logical one.
    shifted = ops.right_shift(x, ops.cast(bits, x.dtype))
    return ops.bitwise_and(shifted, ops.cast((1 << (32 - bits)) - 1, x.dtype))


def _low_half(x):
    return ops.cast(ops.bitwise_and(x, ops.cast(0xFFFF, x.dtype)), "int32")


def _shift_xor(x, bits):
    return ops.bitwise_xor(x, _shift(x, bits))


def _mix(x, key=None):
    """Mix 32-bit integers so that every input bit reaches every output bit."""
    x = ops.multiply(_shift_xor(x, 16), _constant(_MULTIPLIERS[0]))
    if key is not None:
        x = ops.add(x, key)
    x = ops.multiply(_shift_xor(x, 15), _constant(_MULTIPLIERS[1]))
    return _shift_xor(x, 16)


def _key_on_host(seed):
    """Make the key of `hash_bits` for a seed of two ints, and the one made of it."""

    def mixed(x):
        x ^= x >> 16
        x = x * _MULTIPLIERS[0] % 2**32
        x ^= x >> 15
        x = x * _MULTIPLIERS[1] % 2**32
        return x ^ (x >> 16)

    key = 0
    words = (*seed, distribution.replica_id())
    for word, stride in zip(words, _SEED_STRIDES, strict=True):
        key = mixed(((key ^ (int(word) % 2**32)) + stride) % 2**32)
    return key, mixed(key)


class SeedsOfGraph:
    """The seeds of the dropouts in a graph of PyTorch, which is computed many times.

    What seeds are mixed to is an input of the graph. It is drawn anew before each time,
    by the same layers in the same order as a step without a graph draws.

    Args:
        keys: int32 tensor `(most, 2)`, by which the graph is recorded.

    Attributes:
        layers: the `Dropout` of each row of keys that the graph reads.
        seeding: the layer whose seed the generator of a GPU gets, if a kernel draws
            from it.
    """

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys
        self._count = len(keys)
        self.layers: list[Dropout] = []
        self.seeding: Dropout | None = None

    def add(self, layer: "Dropout") -> "_Key":
        """Give the seed of a layer's next call in the graph."""
        row = self._keys[len(self.layers)]
        self.layers.append(layer)
        return _Key(row[0], row[1])

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Let all dropouts take their seeds from here."""
        token = _graph.set(self)
        try:
            yield
        finally:
            _graph.reset(token)

    def draw(self) -> np.ndarray:
        """Draw the keys of the next time, int32 `(most, 2)`."""
        keys = np.zeros((self._count, 2), "int32")
        for row, layer in zip(keys, self.layers, strict=False):
            row[:] = [_signed(word) for word in _key_on_host(layer.next_seed())]
        return keys


_graph: contextvars.ContextVar[SeedsOfGraph | None] = contextvars.ContextVar(
    "graph", default=None
)


class _Key:
    """A seed that `_key_on_host` has mixed, as two tensors of a graph."""

    def __init__(self, first, second):
        self.words = first, second


def _signed(x):
    return x - 2**32 if x >= 2**31 else x


def hash_bits(count: int | Tensor, seed: Any) -> Tensor:
    """Make random 32-bit integers, as a pure function of a seed and a counter.

    Args:
        count: int. How many integers.
        seed: integer tensor of shape `(2,)`, such as
            `keras.random.SeedGenerator.next()` returns; or under PyTorch a pair of
            ints, or what a graph has of it. Every replica of a `tf.distribute`
            strategy gets integers of its own.

    Returns:
        Integer tensor of shape `(count,)`, 32 bits wide.
    """
    dtype = _bits_dtype()
    if isinstance(seed, tuple | _Key):
        if isinstance(seed, _Key):
            key, second = seed.words
        else:
            key, second = (_signed(word) for word in _key_on_host(seed))
        counter = ops.arange(count, dtype="int32")
        return _mix_in_place(counter.bitwise_xor_(key), second)
    words = [ops.cast(seed[0], dtype), ops.cast(seed[1], dtype)]
    words.append(ops.cast(distribution.replica_id(), dtype))
    key = ops.zeros((), dtype)
    for word, stride in zip(words, _SEED_STRIDES, strict=True):
        key = _mix(ops.add(ops.bitwise_xor(key, word), _constant(stride)))
    counter = ops.cast(ops.arange(count, dtype="int32"), dtype)
    if keras.backend.backend() == "torch":
        return _mix_in_place(counter.bitwise_xor_(key), _mix(key))
    counter = ops.bitwise_xor(counter, key)
    return _mix(counter, key=_mix(key))


def _mix_in_place(x, key):
    """Do `_mix` in place: PyTorch's eager operations wait longest for memory."""

    def shift_xor(x, bits):
        return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (32 - bits)) - 1))

    multipliers = [int(np.uint32(value).view("int32")) for value in _MULTIPLIERS]
    x = shift_xor(x, 16).mul_(multipliers[0]).add_(key)
    return shift_xor(shift_xor(x, 15).mul_(multipliers[1]), 16)


def _kept(bits, size, dropped):
    """Tell which of `size` elements stay, by the low halves and then the high ones."""
    if keras.backend.backend() == "torch":
        kept = bits.new_empty(2 * len(bits), dtype=bool)
        kept[: len(bits)] = (bits & 0xFFFF) >= dropped
        kept[len(bits) :] = (
            bits.bitwise_right_shift_(16).bitwise_and_(0xFFFF) >= dropped
        )
        return kept[:size]
    halves = ops.concatenate([_low_half(bits), _low_half(_shift(bits, 16))])
    return halves[:size] >= dropped


class _SeedAgain:
    """The seeds of a computation that is repeated, from a given one on.

    What calls a layer several times, as attention of global tokens does, gets other
    seeds for the later calls, and the same ones each time that all is repeated.
    """

    def __init__(self, seed):
        self._seed = seed
        self._calls = 0

    def next(self):
        first, second = self._seed[0], self._seed[1]
        apart, self._calls = self._calls * 0x1000193, self._calls + 1
        if not apart:
            return self._seed
        if isinstance(self._seed, tuple):
            return first + apart, second
        return ops.stack([first + ops.cast(apart, first.dtype), second])


class _SeedOnHost:
    """A `SeedGenerator`'s seeds as Python's ints, under PyTorch.

    To read them from a GPU is to wait for all that it has to do, so they are read once
    and then counted here as well. PyTorch numbers the changes of a tensor, by which it
    is seen when another has changed the state, as a checkpoint does.
    """

    def __init__(self):
        self._state = self._change = self._seed = self._one = None

    def next(self, generator):
        """Give a pair of ints, or `generator.next()` where there are none yet."""
        import torch

        state = generator.state.value
        # Tensors without values, and graphs whose seeds come with each call.
        if type(state) is not torch.nn.Parameter or state.is_meta:
            return generator.next()
        if torch.compiler.is_compiling():
            return generator.next()
        if self._state is not state or self._change != state._version:
            self._seed = tuple(state.tolist())
            self._one = torch.arange(2, dtype=state.dtype, device=state.device)
        seed = self._seed
        with torch.no_grad():
            generator.state.assign(state + self._one)
        self._seed = seed[0], seed[1] + 1
        self._state, self._change = state, state._version
        return seed


def _on_gpu(x):
    """Tell whether a tensor of PyTorch is on a GPU, and not in a compiled graph."""
    import torch

    return x.is_cuda and _graph.get() is None and not torch.compiler.is_compiling()


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Dropout(keras.layers.Layer):
    """Dropout with cheap random bits, the same under every backend and compiler.

    Sixteen bits of a counter-based hash decide over each element, which costs
    a fraction of a stateful or threefry generator: on two CPU cores a whole
    pre-training step gets about 1.16 times faster. The rate is rounded to a
    multiple of 1/65536 and kept elements are scaled by exactly the inverse of
    the rounded keep probability, so the expectation is exact.

    On GPUs under PyTorch, which has no compiler to join the hash's steps, its own
    kernel drops elements: by other bits, that follow from the same seeds, so that a
    run which is resumed drops what it would have dropped.

    Args:
        rate: float in `[0, 1)`. Share of the elements set to zero.
        seed: int or `None`. Seed of the layer's own `SeedGenerator`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.dropout import Dropout
    layer = Dropout(0.1, seed=0)
    layer(keras.ops.ones((2, 8)), training=True)
    ```
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}.")
        self._rate = rate
        self.seed = seed
        self.supports_masking = True
        self._dropped_of_65536 = round(rate * 65536)
        if self._dropped_of_65536:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self._seed_on_host = _SeedOnHost()
        self._seed_again: _SeedAgain | None = None
        self.built = True

    @property
    def rate(self) -> float:
        return self._rate

    def __call__(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        # Under PyTorch every step calls every layer anew, and what Keras does around a
        # call takes longer than to drop: a GPU waits for it.
        if training is not None and self._is_plain(inputs):
            return self.call(inputs, training)
        return super().__call__(inputs, training=training)

    def _is_plain(self, inputs):
        """Tell whether Keras would give `call` the inputs of PyTorch as they are."""
        if keras.backend.backend() != "torch":
            return False
        import torch

        own = isinstance(inputs, torch.Tensor) and inputs.is_floating_point()
        return own and str(inputs.dtype) == f"torch.{self.compute_dtype}"

    @property
    def kept_rate(self) -> float:
        """Share of the elements that stay, to the rounding of the rate."""
        return 1 - self._dropped_of_65536 / 65536

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        if not training or not self._dropped_of_65536:
            return inputs
        if keras.backend.backend() == "torch" and _on_gpu(inputs):
            import torch

            with self.generator_of(inputs.device):
                return torch.nn.functional.dropout(inputs, 1 - self.kept_rate)
        shape = ops.shape(inputs)
        size = ops.size(inputs) if None in inputs.shape else math.prod(shape)
        bits = hash_bits((size + 1) // 2, self.next_seed())
        keep = ops.reshape(_kept(bits, size, self._dropped_of_65536), shape)
        scale = 65536 / (65536 - self._dropped_of_65536)
        return ops.where(keep, inputs * scale, ops.zeros((), inputs.dtype))

    def next_seed(self) -> Any:
        """Draw the seed of the next call: see `hash_bits`."""
        if self._seed_again is not None:
            return self._seed_again.next()
        graph = _graph.get()
        if graph is not None:
            return graph.add(self)
        if keras.backend.backend() == "torch":
            return self._seed_on_host.next(self.seed_generator)
        return self.seed_generator.next()

    @contextlib.contextmanager
    def drops_by(self, seed: Any) -> Iterator[None]:
        """Let calls drop by a seed that was drawn before, as often as they are made.

        Args:
            seed: what `next_seed` gave.
        """
        self._seed_again = _SeedAgain(seed)
        try:
            yield
        finally:
            self._seed_again = None

    @contextlib.contextmanager
    def generator_of(self, device: Any) -> Iterator[None]:
        """Let PyTorch's kernels of a GPU draw by the layer's next seed.

        Kernels take no generator, so the GPU's own one is seeded. It is as it was
        afterwards.

        Args:
            device: `torch.device`.
        """
        import torch

        graph = _graph.get()
        if graph is not None:
            # The whole graph draws by the seed of one layer.
            graph.seeding = self
            yield
            return
        seed = self.next_seed()
        if not isinstance(seed, tuple):
            seed = tuple(seed.tolist())
        first, second = _key_on_host(seed)
        before = torch.cuda.get_rng_state(device)
        torch.cuda.default_generators[device.index or 0].manual_seed(
            first << 32 | second
        )
        try:
            yield
        finally:
            torch.cuda.set_rng_state(before, device)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
