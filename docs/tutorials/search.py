# %% [markdown]
# # Embed and search
#
# An encoder learns to put texts into vectors, so that those that belong together are
# near each other; an index finds them. The texts are docstrings of Python's standard
# library. [Fine-tuning](../fine_tuning.md#embeddings) has the other losses, and vectors
# of other kinds.

# %% [markdown]
# ## Pairs of texts
#
# The first sentence of a docstring is a query, the words after it the passage to find.
# A tenth is held out.

# %%
import numpy as np
import tensorflow as tf

import keras_bertfam
from keras_bertfam import models, retrieval, tasks, tokenizers

packages = (
    "asyncio",
    "concurrent",
    "email",
    "http",
    "importlib",
    "logging",
    "unittest",
)
docstrings = keras_bertfam.corpus.python_docstrings(packages)
pairs = [
    tuple(" ".join(part.split()[:25]) for part in text.split("\n", 1))
    for text, _ in docstrings
    if "\n" in text
]
order = np.random.default_rng(0).permutation(len(pairs))
count = len(pairs) // 10
held_out = [pairs[number] for number in order[:count]]
train = [pairs[number] for number in order[count:]]
print(len(train), "pairs, such as", train[0])

# %% [markdown]
# ## An encoder
#
# New, with a tokenizer of the passages. One that has been pre-trained is better:
# `TextEmbedder.from_preset("my_bert")`.

# %%
texts = tf.data.Dataset.from_tensor_slices([" ".join(pair) for pair in train])
tokenizer = tokenizers.train_word_piece(texts, vocabulary_size=2000)
backbone = models.BertBackbone.from_preset(
    "bert_tiny_en_uncased",
    load_weights=False,
    vocabulary_size=tokenizer.vocabulary_size(),
)
preprocessor = tasks.TextEmbedderPreprocessor(tokenizer, sequence_length=128)
model = tasks.TextEmbedder(backbone, preprocessor=preprocessor)

# %% [markdown]
# ## Training
#
# For each query its own passage is right, and all others of the batch are wrong.

# %%
queries, passages = (list(part) for part in zip(*train, strict=True))
model.compile(learning_rate=1e-3)
model.fit((queries, passages), batch_size=32, epochs=5, verbose=2)

# %% [markdown]
# ## An index
#
# Of all passages, also those that the model hasn't seen. How often is the right one
# among the first ten?

# %%
everything = [passage for _, passage in pairs]
index = retrieval.Index.build(everything, model, duplicates="skip")
answers = index.find([query for query, _ in held_out], k=10)
hits = [
    passage in [answer.passage for answer in found]
    for (_, passage), found in zip(held_out, answers, strict=True)
]
print(f"{np.mean(hits):.0%} of {len(hits)}; by chance {10 / len(index.passages):.0%}")

# %% [markdown]
# ## Search

# %%
[found] = index.find(["Send a message to the server."], k=3)
for answer in found:
    print(f"{answer.score:.2f}", answer.passage[:90])

# %% [markdown]
# ## Keep both
#
# A service that answers from them is in [Serving](../serving.md#a-search-service).

# %%
model.save_to_preset("python_embedder")
index.save("python_index")
again = tasks.TextEmbedder.from_preset("python_embedder")
index = retrieval.Index.load("python_index", again)
print(index.find(["Log an error."], k=1)[0][0].passage[:90])
