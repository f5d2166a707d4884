"""`python -m benchmarks.mask_shares`: what share of text is masked, by script.

Text is that of programs' messages, which Linux distributions bring in all languages
(`/usr/share/locale`), and random DNA and chemistry strings. For each a small vocabulary
of each kind is trained, and 15 % are asked for.
"""

import gettext
import glob
import random
import sys

import tensorflow as tf

from keras_bertfam import tasks, tokenizers

SCRIPTS = {
    "Cyrillic (Russian)": "ru",
    "Greek": "el",
    "Arabic": "ar",
    "Devanagari (Hindi)": "hi",
    "Bengali": "bn",
    "Thai": "th",
    "Khmer": "km",
    "Burmese": "my",
    "Japanese": "ja",
    "Han (Chinese)": "zh_CN",
    "Tibetan (Dzongkha)": "dz",
}
STRATEGIES = ("tokens", "smoothed_tokens", "words", "ngrams", "spans")
CHARACTERS = 150_000
LENGTH, ROWS = 128, 32


def messages(language):
    """List the texts of the catalogs of a language that aren't as in English."""
    found = {}
    for path in sorted(glob.glob(f"/usr/share/locale/{language}/LC_MESSAGES/*.mo")):
        with open(path, "rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog
        for name, text in catalog.items():
            if name and isinstance(text, str) and text != name and len(text) > 20:
                found[" ".join(text.split())] = None
    return [*found]


def strings(alphabet, size, count):
    """Random lines without spaces."""
    generator = random.Random(0)
    return ["".join(generator.choices(alphabet, k=size)) for _ in range(count)]


def corpora():
    """Lines of text by the names of their scripts."""
    found = {name: messages(language) for name, language in SCRIPTS.items()}
    found["DNA"] = strings("ACGT", 500, 300)
    # Atoms, bonds, rings and branches of SMILES, in no order that means something.
    found["Chemistry"] = strings([*"CCCCNOcccn=()12", "Cl", "[nH]"], 80, 1500)
    for name, lines in found.items():
        sizes, kept = 0, []
        for line in lines:
            if sizes < CHARACTERS:
                kept.append(line)
                sizes += len(line)
        found[name] = kept
    return {name: lines for name, lines in found.items() if lines}


TOKENIZERS = {
    "WordPiece": lambda docs: tokenizers.train_word_piece(docs, 2000, lowercase=False),
    "byte pairs": lambda docs: tokenizers.train_byte_pair(docs, 1000),
    "SentencePiece": lambda docs: tokenizers.train_sentence_piece(
        docs, 2500, keep_accents=True, lowercase=False
    ),
}


def share(tokenizer, docs, strategy):
    """Per cent of the tokens of text that are masked in some batches."""
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, LENGTH, strategy=strategy, selections_per_row="bert"
    )
    preprocessor.adapt(docs)
    masked = tokens = 0
    data = preprocessor.dataset(docs, ROWS, training=False)
    for x, _, weights in data.take(10):
        masked += float(tf.reduce_sum(weights))
        tokens += int(tf.math.count_nonzero(x["padding_mask"]))
    return 100 * masked / tokens


def main(names):
    """Prints the table, of the scripts whose names begin so, or of all."""
    print("| script | vocabulary | " + " | ".join(STRATEGIES) + " |")
    print("|---|---|" + "---|" * len(STRATEGIES))
    for script, lines in corpora().items():
        if not script.startswith(names):
            continue
        docs = tf.data.Dataset.from_tensor_slices(lines)
        for kind, train in TOKENIZERS.items():
            try:
                tokenizer = train(docs)
            except ValueError:  # WordPiece learns of words of up to 50 characters
                print(f"| {script} | {kind} |" + " - |" * len(STRATEGIES), flush=True)
                continue
            shares = [share(tokenizer, docs, strategy) for strategy in STRATEGIES]
            cells = " | ".join(f"{value:.1f}" for value in shares)
            print(f"| {script} | {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or "")
