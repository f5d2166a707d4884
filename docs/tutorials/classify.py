# %% [markdown]
# # Fine-tune and serve
#
# A small encoder learns to tell from which package of the standard library a docstring
# is, and answers strings from a SavedModel. [Fine-tuning](../fine_tuning.md) has all
# other tasks.

# %% [markdown]
# ## Examples
#
# Texts and the names of their classes. A fifth is held out.

# %%
import numpy as np
import tensorflow as tf

import keras_bertfam
from keras_bertfam import export, models, tasks, tokenizers

packages = ("asyncio", "email", "importlib", "logging")
examples = keras_bertfam.corpus.python_docstrings(packages)
order = np.random.default_rng(0).permutation(len(examples))
texts, labels = zip(*[examples[number] for number in order], strict=True)
count = len(texts) // 5
held_out, train = (texts[:count], labels[:count]), (texts[count:], labels[count:])

# %% [markdown]
# ## An encoder
#
# Pre-trained for a minute, as [Pre-train and fill in](pretrain.md) does it for longer.
# The preset that you have made there, or any other, can take its place.

# %%
documents = keras_bertfam.corpus.python_documentation()
documents = tf.data.Dataset.from_tensor_slices(documents)
tokenizer = tokenizers.train_word_piece(documents, vocabulary_size=2000)
backbone = models.BertBackbone.from_preset(
    "bert_tiny_en_uncased",
    load_weights=False,
    vocabulary_size=tokenizer.vocabulary_size(),
    dropout=0.0,
)
masking = tasks.MaskedLMPreprocessor(tokenizer, sequence_length=64, seed=0)
pretraining = tasks.MaskedLM(backbone, masking)
pretraining.compile(learning_rate=2e-3, warmup_steps=0.1)
pretraining.fit(masking.dataset(documents, batch_size=32), epochs=4, verbose=2)
pretraining.save_to_preset("tiny_bert")

# %% [markdown]
# ## A task around it
#
# The head is BERT's, new, on BERT's pooler. Strings are fine as texts and as labels.

# %%
model = tasks.TextClassifier.from_preset("tiny_bert", label_names=packages)
model.compile(learning_rate=1e-3)
model.fit(
    list(train[0]),
    list(train[1]),
    validation_data=(list(held_out[0]), list(held_out[1])),
    batch_size=16,
    epochs=3,
    verbose=2,
)

# %% [markdown]
# ## How good is it, and where is it wrong?

# %%
print(model.report(list(held_out[0]), list(held_out[1])))
print(model.classify("Parse the headers of a message."))

# %% [markdown]
# ## Save it, and serve it
#
# The SavedModel has the tokenizer in its graph. A process that loads it needs
# TensorFlow and `tensorflow_text`, and nothing of Keras; see [Serving](../serving.md)
# for TensorFlow Serving.

# %%
model.save_to_preset("python_packages")
export.export_saved_model(model, "served/python_packages/1")

served = tf.saved_model.load("served/python_packages/1")
answers = served.signatures["serving_default"](
    text=tf.constant(["Emit a record to all handlers.", "Cancel the task."])
)
print(answers["labels"].numpy(), answers["probabilities"].numpy().round(2))
