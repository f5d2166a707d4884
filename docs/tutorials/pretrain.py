# %% [markdown]
# # Pre-train and fill in
#
# From text to a model that fills in masks, on text that every Python has: its own
# documentation, 65,000 words. On two cores it takes a few minutes; nothing is
# downloaded. [Quick start](../quick_start.md) has the same for text of your own, and
# [Fine-tune and serve](classify.md) what can come next.

# %% [markdown]
# ## Text
#
# A document is a string, and an element of a `tf.data.Dataset`. Every tenth is held
# out.

# %%
import tensorflow as tf

import keras_bertfam
from keras_bertfam import models, tasks, tokenizers

texts = keras_bertfam.corpus.python_documentation()
held_out = tf.data.Dataset.from_tensor_slices(texts[::10])
train = tf.data.Dataset.from_tensor_slices(
    [text for number, text in enumerate(texts) if number % 10]
)

# %% [markdown]
# ## A vocabulary
#
# WordPiece, learned from the documents to train on. Rare words become pieces.

# %%
tokenizer = tokenizers.train_word_piece(train, vocabulary_size=2000)
ids = tokenizer("An unhashable object raises an exception.")
print([tokenizer.id_to_token(int(number)) for number in ids])

# %% [markdown]
# ## Rows with masks
#
# The preprocessor packs sentences into rows of 64 tokens and masks some of their
# tokens, others in each epoch. Here is a row, and what was masked in it.

# %%
preprocessor = tasks.MaskedLMPreprocessor(
    tokenizer, sequence_length=64, mask_selection_rate=0.3, seed=0
)
x, y, weight = next(iter(preprocessor.dataset(train, batch_size=32)))
print(tokenizer.detokenize(x["token_ids"][0]))
print(tokenizer.detokenize(y[0][weight[0] > 0]))

# %% [markdown]
# ## A small BERT
#
# Any argument of a published size can be another. With so little text dropout only
# slows it down.

# %%
backbone = models.BertBackbone.from_preset(
    "bert_l4_h128_en_uncased",
    load_weights=False,
    vocabulary_size=tokenizer.vocabulary_size(),
    num_heads=4,
    dropout=0.0,
)
model = tasks.MaskedLM(backbone, preprocessor)
model.compile(learning_rate=2e-3, warmup_steps=0.1)
model.recipe()

# %% [markdown]
# `recipe()` shows what is trained by beside what was published; a star marks what
# differs.
#
# ## Training

# %%
history = model.fit(
    preprocessor.dataset(train, batch_size=32),
    validation_data=preprocessor.dataset(held_out, batch_size=32, training=False),
    epochs=15,
    verbose=2,
)

# %% [markdown]
# ## What it has learned

# %%
for text in (
    "[MASK] the object is not found, an exception is raised.",
    "the default [MASK] of the argument is none.",
):
    print(text, model.fill_mask(text, top_k=3))

# %% [markdown]
# ## Keep it

# %%
model.save_to_preset("python_bert")
again = tasks.MaskedLM.from_preset("python_bert")
print(again.fill_mask("the [MASK] of the list is returned.", top_k=1))
