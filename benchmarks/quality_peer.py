"""Fine-tuning with `transformers` in a plain PyTorch loop, for `benchmarks.quality`."""

import keras


def finetune_transformers(train, test, preset, settings, seed):
    """Labels that their model predicts for `test`.

    Args:
        train: `keras_bertfam.datasets.Examples`.
        test: `keras_bertfam.datasets.Examples`.
        preset: str, a folder.
        settings: `benchmarks.quality.Settings`.
        seed: int.

    Returns:
        A list of labels, of the form of `test.y`.
    """
    import transformers

    transformers.set_seed(seed)
    keras.utils.set_random_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(preset)
    if settings.embedding:
        return _embedded_pairs(train, test, preset, tokenizer, settings)
    kind = {
        "classification": _Classification,
        "regression": _Classification,
        "tagging": _Tagging,
        "question_answering": _Questions,
    }[train.task.kind]
    work = kind(train.task, tokenizer, settings.length)
    model = work.model_class(transformers).from_pretrained(
        preset, num_labels=work.num_labels
    )
    _train(model, work.features(train, labels=True), tokenizer, settings)
    features = work.features(test, labels=False)
    return work.decode(test, features, _predict(model, features, tokenizer))


def _train(model, features, tokenizer, settings):
    def loss(rows):
        batch = [features[k] for k in rows]
        return model(**_collate(batch, tokenizer)).loss

    lengths = [len(row["input_ids"]) for row in features]
    _minimise(model, loss, lengths, settings)


def _minimise(model, loss, lengths, settings):
    """Trains a model on batches of like length, as their trainer can and ours does.

    Args:
        model: `torch.nn.Module`.
        loss: function from the numbers of a batch's rows to a tensor.
        lengths: list of int, those of the rows.
        settings: `benchmarks.quality.Settings`.
    """
    import torch
    import transformers
    from transformers.trainer_pt_utils import get_length_grouped_indices

    size = settings.batch_size
    steps = -(-len(lengths) // size) * settings.epochs
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(settings.warmup * steps), steps
    )
    model.train()
    for _ in range(settings.epochs):
        order = get_length_grouped_indices(lengths, size)
        for start in range(0, len(order), size):
            loss(order[start : start + size]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def _embedded_pairs(train, test, preset, tokenizer, settings):
    """Scores of pairs by the cosine of mean states, trained to be the labels."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(preset)

    def cosines(pairs):
        vectors = []
        for texts in zip(*pairs, strict=True):
            inputs = tokenizer(
                list(texts),
                padding=True,
                truncation=True,
                max_length=settings.length,
                return_tensors="pt",
            )
            mask = inputs["attention_mask"][..., None]
            states = model(**inputs).last_hidden_state
            vectors.append((states * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.cosine_similarity(*vectors)

    pairs, top = list(zip(*train.x, strict=True)), train.task.maximum

    def loss(rows):
        labels = torch.tensor([train.y[k] / top for k in rows])
        return torch.square(cosines([pairs[k] for k in rows]) - labels).mean()

    lengths = [sum(map(len, pair)) for pair in pairs]
    _minimise(model, loss, lengths, settings)
    model.eval()
    pairs, size = list(zip(*test.x, strict=True)), 32
    with torch.no_grad():
        scores = [cosines(pairs[k : k + size]) for k in range(0, len(pairs), size)]
    return (top * torch.cat(scores)).tolist()


def _predict(model, features, tokenizer, size=32):
    """Outputs, a list of arrays for each row of features, in their order."""
    import torch

    model.eval()
    order = sorted(range(len(features)), key=lambda k: len(features[k]["input_ids"]))
    outputs = [None] * len(features)
    with torch.no_grad():
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            result = model(**_collate([features[k] for k in chosen], tokenizer))
            parts = [value.numpy() for value in result.values()]
            for row, k in enumerate(chosen):
                outputs[k] = [part[row] for part in parts]
    return outputs


def _collate(batch, tokenizer):
    """Rows padded to the longest, as tensors; what starts with `_` is left out."""
    import torch

    rows = [{k: v for k, v in row.items() if k[0] != "_"} for row in batch]
    inputs = tokenizer.pad(
        [{k: v for k, v in row.items() if k in _INPUTS} for row in rows],
        return_tensors="pt",
    )
    width = inputs["input_ids"].shape[1]
    for name in rows[0].keys() - _INPUTS:
        values = [row[name] for row in rows]
        if isinstance(values[0], list):
            values = [value + [-100] * (width - len(value)) for value in values]
        inputs[name] = torch.tensor(values)
    return inputs


_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class _Work:
    """How examples of a kind of task become rows of features, and outputs labels."""

    def __init__(self, task, tokenizer, length):
        self.task, self.tokenizer, self.length = task, tokenizer, length
        # A score to start and one to end, for questions.
        questions = task.kind == "question_answering"
        self.num_labels = 2 if questions else len(task.label_names or "1")

    def encode(self, *texts, **options):
        return self.tokenizer(
            *texts, truncation=True, max_length=self.length, **options
        )


class _Classification(_Work):
    def model_class(self, transformers):
        return transformers.AutoModelForSequenceClassification

    def features(self, examples, labels):
        x = examples.x if isinstance(examples.x, tuple) else (examples.x,)
        encoded = self.encode(*x)
        rows = [
            dict(zip(encoded, values, strict=True))
            for values in zip(*encoded.values(), strict=True)
        ]
        if labels:
            for row, label in zip(rows, examples.y, strict=True):
                row["labels"] = label
        return rows

    def decode(self, examples, features, outputs):
        if self.task.kind == "regression":
            return [float(logits[0]) for (logits,) in outputs]
        return [int(logits.argmax()) for (logits,) in outputs]


class _Tagging(_Work):
    def model_class(self, transformers):
        return transformers.AutoModelForTokenClassification

    def features(self, examples, labels):
        rows = []
        for k, words in enumerate(examples.x):
            encoded = self.encode(words, is_split_into_words=True)
            row = dict(encoded)
            numbers = encoded.word_ids()
            # The first piece of each word; special tokens have no word.
            row["_first"] = {
                word: place
                for place, word in reversed(list(enumerate(numbers)))
                if word is not None
            }
            if labels:
                row["labels"] = [-100] * len(numbers)
                for word, place in row["_first"].items():
                    tag = examples.y[k][word]
                    row["labels"][place] = self.task.label_names.index(tag)
            rows.append(row)
        return rows

    def decode(self, examples, features, outputs):
        return [
            [
                # A word that was cut off, or that has no piece, has no entity.
                self.task.label_names[logits[row["_first"][word]].argmax()]
                if word in row["_first"]
                else "O"
                for word in range(len(words))
            ]
            for words, row, (logits,) in zip(examples.x, features, outputs, strict=True)
        ]


class _Questions(_Work):
    """Windows that overlap by `length` less a stride of 128, as BERT's code has."""

    STRIDE, BEST, LONGEST = 128, 20, 30

    def model_class(self, transformers):
        return transformers.AutoModelForQuestionAnswering

    def features(self, examples, labels):
        rows = []
        pairs = zip(examples.x["question"], examples.x["context"], strict=True)
        for k, (question, context) in enumerate(pairs):
            room = self.length - 3 - len(self.tokenizer.tokenize(question)[:64])
            encoded = self.tokenizer(
                question,
                context,
                truncation="only_second",
                max_length=self.length,
                stride=max(room - self.STRIDE, 0),
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for window in range(len(encoded["input_ids"])):
                offsets = [
                    span if side == 1 else None
                    for span, side in zip(
                        encoded["offset_mapping"][window],
                        encoded.sequence_ids(window),
                        strict=True,
                    )
                ]
                row = {name: encoded[name][window] for name in _INPUTS}
                row |= {"_example": k, "_offsets": offsets}
                if labels:
                    row |= _places(offsets, examples.y[k])
                rows.append(row)
        return rows

    def decode(self, examples, features, outputs):
        best = {}
        for row, (starts, ends) in zip(features, outputs, strict=True):
            offsets, k = row["_offsets"], row["_example"]
            starts, ends = (scores[: len(offsets)] for scores in (starts, ends))
            for start in starts.argsort()[: -self.BEST - 1 : -1]:
                for end in ends.argsort()[: -self.BEST - 1 : -1]:
                    inside = offsets[start] and offsets[end]
                    if not inside or not start <= end < start + self.LONGEST:
                        continue
                    score = starts[start] + ends[end]
                    if score > best.get(k, (float("-inf"),))[0]:
                        best[k] = (score, offsets[start][0], offsets[end][1])
        texts = [""] * len(examples)
        for k, (_, begin, end) in best.items():
            texts[k] = examples.x["context"][k][begin:end]
        return texts


def _places(offsets, answers):
    """Where the first answer starts and ends; [CLS] if it isn't wholly inside."""
    begin = answers["answer_start"][0]
    end = begin + len(answers["text"][0])
    spans = [(k, span) for k, span in enumerate(offsets) if span]
    starts = [k for k, span in spans if span[0] <= begin < span[1]]
    ends = [k for k, span in spans if span[0] < end <= span[1]]
    if not starts or not ends:
        return {"start_positions": 0, "end_positions": 0}
    return {"start_positions": starts[0], "end_positions": ends[0]}
