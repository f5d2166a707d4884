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
    # PyTorch can't calculate with uint32; TensorFlow computes int32 on the CPU.
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
    """Mix a seed of two ints to the two keys that `hash_bits` uses."""

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
    """The seeds of all dropouts in a recorded graph of PyTorch that runs many times.

    The keys, which are mixed from seeds, are an input of the graph. `draw` makes new
    ones before each run. The same layers draw in the same order as in a step without a
    graph.

    Args:
        keys: int32 tensor `(most, 2)`, the input with which the graph is recorded.

    Attributes:
        layers: list of `Dropout`: the layer of each row of keys.
        seeding: the layer whose seed the GPU's generator gets, if a kernel draws from
            that generator, else `None`.
    """

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys
        self._count = len(keys)
        self.layers: list[Dropout] = []
        self.seeding: Dropout | None = None

    def add(self, layer: "Dropout") -> "_Key":
        """Give the keys of a layer's next call in the graph."""
        row = self._keys[len(self.layers)]
        self.layers.append(layer)
        return _Key(row[0], row[1])

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Let all dropouts in this context take their seeds from here."""
        token = _graph.set(self)
        try:
            yield
        finally:
            _graph.reset(token)

    def draw(self) -> np.ndarray:
        """Draw the keys of the graph's next run, int32 `(most, 2)`."""
        keys = np.zeros((self._count, 2), "int32")
        for row, layer in zip(keys, self.layers, strict=False):
            row[:] = [_signed(word) for word in _key_on_host(layer.next_seed())]
        return keys


_graph: contextvars.ContextVar[SeedsOfGraph | None] = contextvars.ContextVar(
    "graph", default=None
)


class _Key:
    """The two keys of `_key_on_host`, as tensors of a graph."""

    def __init__(self, first, second):
        self.words = first, second


def _signed(x):
    return x - 2**32 if x >= 2**31 else x


def hash_bits(count: int | Tensor, seed: Any) -> Tensor:
    """Make random 32-bit integers, as a pure function of a seed and a counter.

    Args:
        count: int. How many integers.
        seed: integer tensor of shape `(2,)`, such as
            `keras.random.SeedGenerator.next()` returns. With PyTorch also a pair of
            ints, or the keys of a graph. Every replica of a `tf.distribute` strategy
            gets different integers for the same seed.

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
    """Do `_mix` in place: PyTorch's eager operations spend most time on memory."""

    def shift_xor(x, bits):
        return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (32 - bits)) - 1))

    multipliers = [int(np.uint32(value).view("int32")) for value in _MULTIPLIERS]
    x = shift_xor(x, 16).mul_(multipliers[0]).add_(key)
    return shift_xor(shift_xor(x, 15).mul_(multipliers[1]), 16)


def _kept(bits, size, dropped):
    """Tell which of `size` elements stay.

    The low 16 bits of each integer decide over the first half of the elements, the high
    16 bits over the second.
    """
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
    """The seeds of a layer's calls in a computation that is repeated.

    The first call gets the given seed, and later calls other ones: attention with
    global tokens, for example, calls its dropout twice. A repetition gets the same
    seeds again.
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
    """A `SeedGenerator`'s seeds as Python ints, with PyTorch.

    Reading a seed from a GPU waits until the GPU has finished all its work. So the
    state is read once and then also counted here. PyTorch counts the changes of each
    tensor; this tells when something else, such as a loaded checkpoint, has changed the
    state.
    """

    def __init__(self):
        self._state = self._change = self._seed = self._one = None

    def next(self, generator):
        """Give a pair of ints, or `generator.next()` if the state has no values yet."""
        import torch

        state = generator.state.value
        # Meta tensors have no values; in graphs the seeds come with each call.
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
    """Tell whether a tensor of PyTorch is on a GPU and isn't being compiled."""
    import torch

    return x.is_cuda and _graph.get() is None and not torch.compiler.is_compiling()


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Dropout(keras.layers.Layer):
    """Dropout with cheap random bits that are the same on every backend.

    Sixteen bits of a counter-based hash decide over each element. This costs a fraction
    of a stateful or threefry generator: on two CPU cores a whole pre-training step is
    about 1.16 times as fast. The rate is rounded to a multiple of 1/65536 below 1. Kept
    elements are scaled by the inverse of the rounded keep probability, so the
    expectation is exact.

    On GPUs with PyTorch, PyTorch's own kernel drops elements, because no compiler joins
    the hash's steps there. Its bits differ from the hash's, but follow from the same
    seeds: a resumed run drops the same elements as an uninterrupted one.

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
        self._dropped_of_65536 = min(round(rate * 65536), 65535)
        if self._dropped_of_65536:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self._seed_on_host = _SeedOnHost()
        self._seed_again: _SeedAgain | None = None
        self.built = True

    @property
    def rate(self) -> float:
        return self._rate

    def __call__(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        # PyTorch runs Keras's code around each call in every step. That takes longer
        # than the dropout itself, and a GPU waits for it.
        if training is not None and self._is_plain(inputs):
            return self.call(inputs, training)
        return super().__call__(inputs, training=training)

    def _is_plain(self, inputs):
        """Tell whether Keras would pass PyTorch's inputs to `call` unchanged."""
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
        """Let all calls in this context drop by a seed that was drawn before.

        Args:
            seed: what `next_seed` gave.
        """
        before, self._seed_again = self._seed_again, _SeedAgain(seed)
        try:
            yield
        finally:
            self._seed_again = before

    @contextlib.contextmanager
    def generator_of(self, device: Any) -> Iterator[None]:
        """Seed the GPU's generator, from which PyTorch's kernels draw.

        The kernels take no other generator. Its state is restored afterwards.

        Args:
            device: `torch.device`.
        """
        import torch

        graph = _graph.get()
        if graph is not None:
            # One layer's seed serves the whole graph.
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
