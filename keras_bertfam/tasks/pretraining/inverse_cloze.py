"""How the inverse cloze task was trained."""

from keras_bertfam.presets.families.recipes import PretrainingRecipe

# The released code's warm-up is a tenth of the steps, within bounds.
WARMUP_BOUNDS = (100, 10_000)
INVERSE_CLOZE_RECIPE = PretrainingRecipe(
    task="DualEncoder",
    source="Lee et al., 2019, and its released code",
    learning_rate=1e-4,
    warmup_steps=10_000,
    total_steps=100_000,
    batch_size=4096,
    sequence_length=288,
    schedule_form="hold",
    bias_correction=False,
    masking={"mask_rate": 0.9},
    task_arguments={"projection_dim": 128, "projection_norm": True},
)
