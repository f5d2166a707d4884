import pytest

from keras_bertfam.cli.preparing import quality_rules
from keras_bertfam.corpora import QualityRules

GOOD = ("The cats of this town are rather old, and so they sleep. " * 9).strip()


@pytest.mark.parametrize(
    ("name", "value", "good", "bad"),
    [
        ("min_characters", 3, "abc", "ab"),
        ("max_characters", 3, "abc", "abcd"),
        ("min_words", 2, "a b", "ab"),
        ("max_words", 2, "a b", "a b c"),
        ("min_word_length", 2, "abc a", "ab a"),
        ("max_word_length", 2, "ab ab", "ab abc"),
        ("max_symbols", 0.5, "a # b", "a # #"),
        ("max_symbols", 0.5, "a… b", "a… b..."),
        ("max_bullet_lines", 0.5, "- a\nb", "- a\n• b\nc"),
        ("max_ellipsis_lines", 0.5, "a…\nb", "a…\nb...\nc"),
        ("min_alphabetic_words", 0.5, "a 1", "a 1 --"),
        ("min_alphabetic_words", 1, "Ελλάδα 1a 中文", "中文 _1_"),
        ("max_repeated_lines", 0.5, "a\na", "a\na\na"),
        ("max_repeated_line_characters", 0.5, "abc\na\nabc", "abc\nabc\nabc"),
        ("min_sentences", 2, "A. B.", "A.B"),
        ("min_sentences", 2, "甲。乙。", "甲。"),
        ("without", ("{", "lorem ipsum"), "lorem (ipsum)", "A Lorem ipsum"),
    ],
)
def test_rule(name, value, good, bad):
    rules = QualityRules(**{name: value})
    assert rules.apply(good)[1] is None
    assert rules.apply(bad)[1] == name
    assert rules.arguments() == {name: value}


def test_lines_are_left_out():
    rules = QualityRules(min_line_words=2, sentence_lines=True)
    document, rule = rules.apply('Menu\nA cat.\nA dog\n"A bird!"\n二。')
    assert (document.text, rule) == ('A cat.\n"A bird!"', None)
    assert rules.apply("Menu\nHome")[1] == "min_line_words"
    assert rules.apply("My menu\nMy home")[1] == "sentence_lines"


def test_published_rules():
    assert QualityRules.gopher().apply(GOOD)[1] is None
    assert QualityRules.gopher().apply("a " * 60)[1] == "min_word_length"
    assert QualityRules.c4().apply(GOOD)[1] is None
    assert QualityRules.c4().apply(GOOD + " {")[1] == "sentence_lines"
    assert QualityRules.gopher(min_words=100).apply(GOOD)[1] is None
    assert QualityRules.gopher(min_words=100).apply(GOOD[:400])[1] == "min_words"
    assert QualityRules().apply("")[1] is None


def test_rules_of_a_command_line():
    rules = quality_rules(
        ["gopher", "min_words=9", "max_symbols=0.2", "sentence_lines", "without=a,b"]
    )
    expected = QualityRules.gopher(
        min_words=9, max_symbols=0.2, sentence_lines=True, without=("a", "b")
    )
    assert rules == expected
    assert quality_rules(["c4", "sentence_lines=false"]).sentence_lines is False
    assert quality_rules(["max_bullet_lines=0"]).arguments() == {"max_bullet_lines": 0}
    for wrong in ("best", "gopher=1", "min_words=x", "sentence_lines=x"):
        with pytest.raises(ValueError, match="`rule` must"):
            quality_rules([wrong])
    with pytest.raises(ValueError, match="`min_words` must not be negative"):
        quality_rules(["min_words=-1"])
