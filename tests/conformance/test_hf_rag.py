"""RAG against `transformers`: scores of passages, logits, both likelihoods."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from tests.compiled import compiled
from tests.conformance.test_hf_text_to_text import BART, T5
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PAD, PASSAGES = {"t5": 0, "bart": 1}, 3
BERT = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1}
BERT |= {"num_attention_heads": 2, "intermediate_size": 12}
RNG = np.random.default_rng(0)
QUERY = RNG.integers(3, 20, (2, 6)).astype("int32")
SOURCE = RNG.integers(3, 20, (2, PASSAGES, 7)).astype("int32")
MASK = np.ones(SOURCE.shape, bool)
MASK[:, 1, 4:] = False
DECODER = RNG.integers(3, 20, (2, 5)).astype("int32")
VECTORS = RNG.normal(size=(2, PASSAGES, 8)).astype("float32")


def make_theirs(kind):
    arguments = {"vocab_size": 20, **(T5 if kind == "t5" else BART)}
    cls = transformers.T5Config if kind == "t5" else transformers.BartConfig
    config = transformers.RagConfig.from_question_encoder_generator_configs(
        transformers.DPRConfig(**BERT), cls(**arguments), n_docs=PASSAGES
    )
    config.generator.bos_token_id = None  # T5's has none, which it is asked for
    return randomize(transformers.RagModel(config), 0.1)


def question_tower(theirs):
    """DPR's encoder is a BERT, by another name."""
    tower = theirs.question_encoder.question_encoder.bert_model
    bert = transformers.BertModel(
        transformers.BertConfig(**BERT), add_pooling_layer=False
    )
    bert.load_state_dict(tower.state_dict(), strict=False)
    return convert(models.BertBackbone, bert)


@pytest.mark.parametrize("kind", PAD)
def test_scores_logits_and_likelihoods(kind):
    theirs = make_theirs(kind)
    retriever = tasks.DualEncoder(question_tower(theirs), projection_dim=None)
    generator = convert(tasks.TextToText, theirs.generator)
    ours = tasks.RetrievalAugmentedGenerator(generator, None, retriever)
    decoder = DECODER.copy()
    decoder[1, 4] = PAD[kind]
    y = np.concatenate([decoder[:, 1:], np.full((2, 1), PAD[kind], "int32")], 1)
    weights = (y != PAD[kind]).astype("float32")
    x = {
        "query_token_ids": QUERY,
        "query_padding_mask": np.ones(QUERY.shape, bool),
        "passage_vectors": VECTORS,
        "encoder_token_ids": SOURCE,
        "encoder_padding_mask": MASK,
        "decoder_token_ids": decoder,
    }
    outputs = compiled(ours)(x)
    query = torch.tensor(QUERY).long()
    with torch.no_grad():
        states = theirs.question_encoder(query).pooler_output
        scores = torch.bmm(
            states.unsqueeze(1), torch.tensor(VECTORS).transpose(1, 2)
        ).squeeze(1)
        inputs = {
            "context_input_ids": torch.tensor(SOURCE).long().flatten(0, 1),
            "context_attention_mask": torch.tensor(MASK).long().flatten(0, 1),
            "doc_scores": scores,
            "decoder_input_ids": torch.tensor(decoder).long(),
        }
        plain = theirs(**inputs)
        config = theirs.config
        by_token = transformers.RagTokenForGeneration(
            config, theirs.question_encoder, theirs.generator
        ).eval()
        by_sequence = transformers.RagSequenceForGeneration(
            config, theirs.question_encoder, theirs.generator
        ).eval()
        labels = {"labels": inputs["decoder_input_ids"]}
        marginal = by_token(**inputs, do_marginalize=True).logits
        losses = {
            "token": by_token(**inputs, **labels).loss,
            "sequence": by_sequence(**inputs, **labels).loss,
        }
    assert max_difference(outputs["passage_scores"], scores) < 1e-4
    logits = ops.reshape(outputs["logits"], tuple(plain.logits.shape))
    assert max_difference(logits, plain.logits) < 1e-4
    assert max_difference(ours.log_probabilities(outputs), marginal) < 1e-4
    for name, expected in losses.items():
        ours = type(ours)(generator, None, retriever, name)
        loss = float(ops.convert_to_numpy(ours.compute_loss(x, y, outputs, weights)))
        assert loss * weights.sum() == pytest.approx(float(expected.sum()), rel=1e-5)
