"""A small reader of passages that are found: exact match of its answers on SQuAD."""

import time

import numpy as np

READ = 1, 5


class Reader:
    """MiniLM that finds answers in paragraphs, and says where there is none.

    It is trained on paragraphs that answer and, for every fourth question, on one that
    BM25 finds in its place. Of several paragraphs the answer counts that is surest
    beside none.

    Args:
        preset: folder of the encoder.
        paragraphs: list of str.
        length: int. Tokens of a paragraph.
    """

    def __init__(self, preset, paragraphs, length):
        import keras_bertfam

        model = keras_bertfam.tasks.SpanQuestionAnswering.from_preset(
            preset, null_threshold=0.0
        )
        tokenizer = model.preprocessor.tokenizer
        self._model = keras_bertfam.tasks.SpanQuestionAnswering(
            model.backbone,
            keras_bertfam.tasks.SpanQuestionAnsweringPreprocessor(
                tokenizer, length + 40, 37, doc_stride=length // 2
            ),
            null_threshold=0.0,
        )
        self._paragraphs = paragraphs
        self._test = []

    def train(self, asked, wrong, steps, batch_size, rate=1e-4):
        """Trains on `(question, paragraph, article, answers)`s and what BM25 finds."""
        start = time.perf_counter()
        rng = np.random.default_rng(0)
        x, y = {"question": [], "context": []}, []
        for number in rng.permutation(len(asked))[: steps * batch_size]:
            question, place, _, answers = asked[number]
            answer = answers[0]
            if len(y) % 4 == 3:
                place = next(k for k in wrong[number] if k != place)
                answer = None
            context = self._paragraphs[place]
            if answer and not context.startswith(
                answer["text"], answer["answer_start"]
            ):
                continue  # the paragraph had white space before it
            x["question"].append(question)
            x["context"].append(context)
            y.append(
                {"text": [], "answer_start": []}
                if answer is None
                else {k: [v] for k, v in answer.items()}
            )
        self._model.compile(learning_rate=rate)
        self._model.fit(x, y, batch_size=batch_size, verbose=2)
        print(f"a reader of {len(y)} questions: {time.perf_counter() - start:.0f} s")

    def choose(self, test, count):
        """Which questions are answered: some of all, in order."""
        chosen = np.random.default_rng(2).permutation(len(test))[:count]
        self._test = [(int(k), test[k]) for k in sorted(chosen)]

    def scores(self, ids):
        """Exact match from the first, and the first five, of the ids of paragraphs."""
        import keras_bertfam
        from keras_bertfam.metrics.squad import answer_texts

        count = min(max(READ), ids.shape[1])
        asked = {
            "question": [row[0] for _, row in self._test for _ in range(count)],
            "context": [
                self._paragraphs[place]
                for number, _ in self._test
                for place in ids[number][:count]
            ],
        }
        found = self._model.predict(asked, batch_size=32, verbose=0)
        texts = answer_texts(found)
        odds = np.array([answer["no_answer_odds"] for answer in found])
        odds, y = odds.reshape(-1, count), []
        for _, (*_, answers) in self._test:
            y.append({"text": [answer["text"] for answer in answers]})
        result = {}
        for k in [k for k in READ if k <= count]:
            best = odds[:, :k].argmin(1) + count * np.arange(len(y))
            scores = keras_bertfam.metrics.squad_scores(y, [texts[i] for i in best])
            result[f"exact match of {k}"] = scores["exact_match"]
        return result
