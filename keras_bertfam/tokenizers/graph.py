"""What a dataset needs of a tokenizer: ops of the graph, and where words start."""


def as_graph_layer(tokenizer):
    """The tokenizer, made to run the graph ops of a dataset in eager calls too."""
    tokenizer._allow_python_workflow = False
    tokenizer.built = True  # else Keras traces a task anew for each batch given
    return tokenizer


def word_start_table(tokenizer):
    """Returns a bool list over the vocabulary: which tokens start a word.

    The vocabulary's own sign tells: `##` marks the continuations of WordPiece;
    `Ġ` (byte-level BPE) and `▁` (SentencePiece) mark the starts. Special tokens
    start a word.
    """
    tokens = [""] * tokenizer.vocabulary_size()
    for token in tokenizer.get_vocabulary():
        tokens[tokenizer.token_to_id(token)] = token
    special = set(tokenizer.special_tokens)
    if any(t.startswith("##") for t in tokens):
        return [not t.startswith("##") for t in tokens]
    for sign in ("Ġ", "▁"):
        if any(t.startswith(sign) for t in tokens):
            return [t.startswith(sign) or t in special for t in tokens]
    raise ValueError(
        "Whole words need a vocabulary that marks them by `##`, `Ġ` or `▁`. "
        f"Received: {type(tokenizer).__name__} without any."
    )
