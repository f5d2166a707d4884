"""A folder of a small BERT of `transformers`, with its tokenizer."""

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


def write(folder, words=WORDS, cls="BertModel", special=(), **kwargs):
    """Write one whose weights are of a seed."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        **{"max_position_embeddings": 16, "initializer_range": 1.0, **kwargs},
    )
    getattr(transformers, cls)(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    tokenizer.save_pretrained(folder)
    return folder
