# %% [markdown]
# # Gallery
#
# Pictures of trained models, each made by the code above it. The model here is tiny and
# has read Python's documentation for some seconds: what is to be seen is what can be
# looked at, not how good a model gets. Pictures need the extra `analysis`. What each
# function tells is in [Fine-tuning](fine_tuning.md#look-inside).

# %%
import pathlib

import tensorflow as tf

import keras_bertfam
from keras_bertfam import analysis, models, tasks, tokenizers

texts = keras_bertfam.corpus.python_documentation()
docs = tf.data.Dataset.from_tensor_slices(texts)
tokenizer = tokenizers.train_word_piece(docs, vocabulary_size=1000)
preprocessor = tasks.MaskedLMPreprocessor(tokenizer, sequence_length=32, seed=0)
backbone = models.BertBackbone(
    tokenizer.vocabulary_size(),
    num_layers=3,
    num_heads=4,
    hidden_dim=64,
    intermediate_dim=128,
    dropout=0.0,
)
model = tasks.MaskedLM(backbone, preprocessor)
model.compile(learning_rate=5e-3, warmup_steps=0.1)
pathlib.Path("gallery").mkdir(exist_ok=True)

# %% [markdown]
# ## Training
#
# Metrics are those of masked tokens. `plots.compare` draws several runs.

# %%
batches = preprocessor.dataset(docs, batch_size=16)
held_out = preprocessor.dataset(docs.take(8), batch_size=16, training=False)
log = model.fit(
    batches.repeat(),
    steps_per_epoch=60,
    epochs=6,
    validation_data=held_out,
    verbose=0,
)
analysis.plots.history(log, "gallery/training.png")

# %% [markdown]
# ## Attention
#
# A page with three views: lines from token to token, all heads at once, and how a
# weight comes about. It loads nothing and works in notebooks.

# %%
sentences = [
    "the object is not found and an exception is raised.",
    "if the argument is omitted, the default value is used.",
]
analysis.attention_view(model, sentences, "gallery/attention.html")

# %% [markdown]
# ## What heads look at
#
# How sure each head is, whether it looks at the token before or after, at separators,
# at rare words; and which heads are alike.

# %%
analysis.head_roles(model, sentences).plot("gallery/roles.png")

# %% [markdown]
# ## From layer to layer
#
# ALBERT's figure: how far, and by what angle, each layer moves the states.

# %%
rows = preprocessor.encode(sentences)
states = backbone(dict(rows), return_hidden_states=True)["hidden_states"]
transitions = analysis.layer_transitions(states, rows["padding_mask"])
analysis.plot_layer_transitions({"BERT, 3 layers": transitions}, "gallery/layers.png")

# %% [markdown]
# ## Words in context
#
# A vector for each occurrence of some words, in the plane of their two principal
# components.

# %%
lines = [line for text in texts for line in text.splitlines() if len(line) < 120]
found = analysis.word_vectors(model, lines[:400], ["object", "value", "class"])
found.plot("gallery/words.png")

# %% [markdown]
# ## A classifier's report
#
# Scores, confusions and the worst errors, as text and as a picture.

# %%
packages = ("asyncio", "email", "logging")
examples = keras_bertfam.corpus.python_docstrings(packages)[::4]
docstrings, labels = (list(part) for part in zip(*examples, strict=True))
classifier = tasks.TextClassifier(
    backbone,
    preprocessor=tasks.TextClassifierPreprocessor(tokenizer, sequence_length=32),
    label_names=packages,
)
classifier.compile(learning_rate=2e-3)
classifier.fit(docstrings, labels, epochs=3, verbose=0)
classifier.report(docstrings, labels).plot("gallery/report.png")

# %% [markdown]
# ## Which tokens an answer comes from

# %%
[saliency] = analysis.token_saliency(classifier, ["Emit a record to the handler."])
saliency.plot("gallery/saliency.png")
