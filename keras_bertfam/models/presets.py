"""Backbones by name, from and to preset directories."""

import concurrent.futures

import keras

from keras_bertfam import saving


class NamedPresets:
    """Mixin of backbones that are built from the name of a published size.

    Attributes:
        presets_table: dict from names to arguments of the constructor.
    """

    presets_table = {}

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Build a backbone from the name of a published size or a directory.

        Args:
            preset: str. The name of a published size (see `cls.presets_table`),
                the path of a directory that `save_to_preset()` wrote, or a
                handle that `keras_hub.models.Backbone.from_preset` takes.
            load_weights: bool. Load the weights, or initialise them.
            **kwargs: arguments of the constructor to override.

        Returns:
            A backbone.

        Raises:
            ValueError: for an unknown name (with the nearest ones), or for a
                directory with missing or truncated files.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        ```
        """
        families = {
            name: family
            for family in _with_subclasses(cls)
            for name in family.presets_table
        }
        if preset not in families:
            saving.check_preset(preset, families, load_weights)
            with saving.explain_load_errors(preset):
                return super().from_preset(preset, load_weights, **kwargs)
        if load_weights:
            raise ValueError(
                f"The published weights of {preset!r} can't be loaded by name. "
                "Pass `load_weights=False` for new weights of that size, or the "
                "path of a preset directory."
            )
        family = families[preset]
        return family(**{**family.presets_table[preset], **kwargs})

    def save_to_preset(self, preset_dir, max_shard_size=10):
        with saving.write_aside(preset_dir) as directory:
            super().save_to_preset(directory, max_shard_size=max_shard_size)

    @classmethod
    def parameter_count(cls, *args, **kwargs):
        """Number of weights of a configuration, without allocating them.

        Takes the arguments of the constructor.

        Example:

        ```python
        keras_bertfam.models.BertBackbone.parameter_count(
            vocabulary_size=30522, num_layers=24, num_heads=16, hidden_dim=1024,
            intermediate_dim=4096)  # 335141888
        ```
        """

        def count():
            with keras.StatelessScope(initialize_variables=False):
                return cls(*args, **kwargs).count_params()

        # Keras remembers, for each thread, variables to initialise once there is
        # memory for them. These must never be, so their thread ends here.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(count).result()


def _with_subclasses(cls):
    yield cls
    for subclass in cls.__subclasses__():
        yield from _with_subclasses(subclass)
