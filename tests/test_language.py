"""The documentation keeps the rules of docs/style.md that a program can measure."""

from __future__ import annotations

import pytest

from tests.code_language import code_faults, code_files
from tests.language import ROOT, Sentence, checked_pages, excess, faults, sentences, user_pages, words_of


def of(markdown: str) -> list[Sentence]:
    return list(sentences("page.md", markdown))


def test_the_pages_have_short_sentences_and_no_banned_word() -> None:
    found = [sentence for page in checked_pages() for sentence in sentences(page, (ROOT / page).read_text())]
    assert faults(found) == []


def test_the_pages_for_users_are_short() -> None:
    assert excess(words_of(user_pages())) == []


def test_too_many_words_name_the_longest_pages() -> None:
    assert excess({"a": 44_000, "b": 1_000}) == []
    assert excess({"a": 1_001, "b": 44_000}) == [
        "the users' pages have 45,001 words, 45,000 at most; shorten some: b 44,000, a 1,001"
    ]


def test_pages_of_the_project_are_not_for_users() -> None:
    pages = user_pages()
    assert {"docs/index.md", "docs/explanation/folds.md"} <= {*pages}
    assert not {"README.md", "docs/map.md", "docs/style.md"} & {*pages}


def test_a_sentence_of_more_than_35_words_is_named_by_page_and_line() -> None:
    text = "# A title\n\nShort. Short, too.\nLong " + "word " * 35 + "here.\n"
    assert faults(of(text))[0] == "page.md:4: 37 words: Long word word word word word word word …"


def test_one_sentence_in_twenty_may_have_more_than_25_words() -> None:
    long, short = f"Long {'word ' * 25}here.", " This is quite short. A label."
    assert faults(of(long + short * 19)) == []
    assert faults(of(long + short * 18))[0] == "1 of 19 sentences have more than 25 words, 5% may:"


_BANNED = ["Nobody is.", "An error of who slept.", "- a list of its\n  own", "| a |\n|---|\n| made anew |", "# Whoever"]


@pytest.mark.parametrize("text", _BANNED)
def test_banned_words_are_found_wherever_prose_is(text: str) -> None:
    assert faults(of(text)) != []


@pytest.mark.parametrize("text", ["Not `told`.", "```sh\nnobody\n```", "    whatever\n", "Retold, besides."])
def test_code_and_longer_words_are_not_banned(text: str) -> None:
    assert faults(of(text)) == []


def test_a_code_span_is_one_word_and_ends_no_sentence() -> None:
    assert [one.words for one in of("Run `make serve. Then wait` twice. See [the page](a.md) (it is short).")] == [3, 6]


def test_a_cell_of_a_table_and_an_item_of_a_list_are_sentences_with_their_lines() -> None:
    found = of("| a b | c |\n|---|---|\n| d | e f g |\n\n- h\n- i j\n")
    assert [(one.line, one.words) for one in found] == [(1, 2), (1, 1), (3, 1), (3, 3), (5, 1), (6, 2)]


@pytest.mark.parametrize("prose", ["Who builds images.", "A lock. Who has it, builds.", "The turn of\n    who reads."])
def test_the_word_who_without_a_noun_is_found_in_docstrings(prose: str) -> None:
    assert len([*code_faults("x.py", f'"""{prose}"""\n')]) == 1


@pytest.mark.parametrize("prose", ["Who has the lock?", "Callers who wait.", "The log: who did what."])
def test_the_word_who_after_a_noun_and_in_questions_is_allowed(prose: str) -> None:
    assert [*code_faults("x.py", f'"""{prose}"""\n')] == []


def test_names_docstrings_and_comments_of_code_have_no_banned_word_and_texts_of_users_are_not_looked_at() -> None:
    code = 'def told(fresh_anew: int) -> None:\n    """What `tells` tells of it."""\n    # nobody\n    x = "told"\n'
    assert sorted(code_faults("x.py", code)) == [
        "x.py:1: banned in names: anew",
        "x.py:1: banned in names: told",
        "x.py:2: banned: tells",
        "x.py:3: banned: nobody",
    ]
    paths = {str(path.relative_to(ROOT)) for path in code_files()}
    assert {"app/main.py", "spark_jobs/server.py"} <= paths
