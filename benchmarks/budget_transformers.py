"""Pre-training within a budget of time by the `Trainer` of `transformers`."""

import itertools
import tempfile

from benchmarks.budget import EPSILON, FOREVER, WEIGHT_DECAY, rate_factor


def transformers(work, blocks=True):
    """Theirs: a `Trainer` and `DataCollatorForLanguageModeling`.

    Args:
        work: `Work`.
        blocks: bool. Whether running text is cut into full rows, as in their guide
            and the default of their script; else each paragraph is a row, padded to
            the longest of its batch, as in that script's `--line_by_line`.
    """
    import datasets
    import torch
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertTokenizerFast,
        DataCollatorForLanguageModeling,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    recipe = work.recipe
    set_seed(work.seed)
    datasets.disable_caching()  # the next run would begin ahead
    datasets.disable_progress_bars()
    scored = work.scored(work.vocabulary)
    curve = work.curve()
    ids = {token: number for number, token in enumerate(work.vocabulary)}
    tokenizer = BertTokenizerFast(vocab=ids)
    data = datasets.Dataset.from_dict({"text": work.paragraphs})
    data = (
        _blocks(data, tokenizer, recipe) if blocks else _rows(data, tokenizer, recipe)
    )
    sizes = work.architecture(len(work.vocabulary))
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=sizes["vocabulary_size"],
            hidden_size=sizes["hidden_dim"],
            num_hidden_layers=sizes["num_layers"],
            num_attention_heads=sizes["num_heads"],
            intermediate_size=sizes["intermediate_dim"],
            max_position_embeddings=sizes["max_sequence_length"],
            hidden_dropout_prob=sizes["dropout"],
            attention_probs_dropout_prob=sizes["dropout"],
        )
    )

    def logits(token_ids, padding_mask, positions):
        tensors = [
            torch.tensor(value, dtype=torch.long)
            for value in (token_ids, padding_mask, positions)
        ]
        model.eval()
        with torch.no_grad():
            states = model.bert(tensors[0], tensors[1]).last_hidden_state
            states = states[torch.arange(len(positions))[:, None], tensors[2]]
            values = model.cls(states).numpy()
        model.train()
        return values

    class InBudget(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if curve.after_step(lambda: scored.evaluate(logits)):
                control.should_training_stop = True

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                max_steps=FOREVER,
                per_device_train_batch_size=recipe.batch_size,
                learning_rate=recipe.learning_rate,
                weight_decay=WEIGHT_DECAY,
                adam_epsilon=EPSILON,
                seed=work.seed,
                use_cpu=True,
                bf16=recipe.precision == "mixed_bfloat16",
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=data,
            data_collator=DataCollatorForLanguageModeling(
                tokenizer, mlm_probability=recipe.mask_selection_rate
            ),
            callbacks=[InBudget()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.create_optimizer()
        trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            trainer.optimizer,
            lambda _: rate_factor(curve.stopwatch.share(), recipe.warmup),
        )
        trainer.train()


def _rows(data, tokenizer, recipe):
    def encode(batch):
        return tokenizer(
            batch["text"],
            truncation=True,
            max_length=recipe.sequence_length,
            return_special_tokens_mask=True,
        )

    return data.map(encode, batched=True, remove_columns=["text"])


def _blocks(data, tokenizer, recipe):
    """The script's `group_texts`; what is left over after 1,000 texts is dropped."""

    def encode(batch):
        return tokenizer(batch["text"], return_special_tokens_mask=True)

    def group(batch):
        joined = {name: [*itertools.chain(*parts)] for name, parts in batch.items()}
        size = recipe.sequence_length
        total = len(joined["input_ids"]) // size * size
        return {
            name: [values[start : start + size] for start in range(0, total, size)]
            for name, values in joined.items()
        }

    encoded = data.map(encode, batched=True, remove_columns=["text"])
    return encoded.map(group, batched=True)


def transformers_lines(work):
    """As `transformers`, a paragraph a row."""
    transformers(work, blocks=False)
