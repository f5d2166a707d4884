"""Make the signatures of SavedModels for fine-tuning tasks and retrievers."""

from typing import Any

from keras_bertfam.export.signatures import not_exported, serving_signatures
from keras_bertfam.serving import Signature, strings
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask
from keras_bertfam.tasks.retrieval.retriever import Retriever


@serving_signatures.register
def _(model: FineTuningTask, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    if model.serving_signatures is None:
        raise not_exported(model)
    return model.serving_signatures(preprocessor, **options)


@serving_signatures.register
def _(model: Retriever, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    def queries(text):
        rows = preprocessor.encode_texts("query", text)
        return {"embeddings": model.query_vectors(rows)}

    def passages(title, text):
        rows = preprocessor.encode_texts("passage", (title, text))
        return {"embeddings": model.passage_vectors(rows)}

    text, title = ["A text to start with."], ["Its title"]
    return {
        "serving_default": Signature(
            queries, {"text": strings("text")}, {"text": text}
        ),
        "passages": Signature(
            passages,
            {"title": strings("title"), "text": strings("text")},
            {"title": title, "text": text},
        ),
    }
