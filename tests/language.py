"""The language of the documentation, measured: long sentences, banned words and length (docs/style.md).

``make check`` runs it. Vale does the same, but is a binary to install; a Markdown parser is enough here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
MOST_WORDS = 35  # of any sentence
LONG, LONG_SHARE = 25, 0.05  # at most this share of all sentences has more words
MOST_WORDS_TOGETHER = 45_000  # of the users' pages, as `wc -w` counts
OF_PROJECT = {f"docs/{name}.md" for name in ("map", "extending", "make", "mutants", "benchmarks", "style")}
LABEL = 3  # words of a heading or a table cell that is no sentence: it does not count in the share
BANNED = re.compile(
    r"\b(?:told|tells|whoever|whatever|nobody|anew|beside|of\s+its\s+own|as\s+it\s+stands|who\s+asks"
    r"|(?:of|by|for|helps)\s+who|reject(?:s|ed|ing)?)\b",
    re.IGNORECASE,
)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[`]*[A-Z0-9`])")


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the line of the page where its text begins."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> int:
        return sum(bool(re.search(r"\w", word)) for word in self.text.split())

    @property
    def banned(self) -> list[str]:
        return BANNED.findall(re.sub(r"`[^`]*`", "", self.text))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.words} words: {' '.join(self.text.split()[:8])} …"


def checked_pages() -> list[str]:
    """Pages that people write, by their paths."""
    paths = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md"))]
    others = ("docs/decisions/", "docs/reference/")
    written = [path for path in paths if not path.startswith(others)]
    return ["README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", *written]


def user_pages() -> list[str]:
    """Return the pages of docs/ for users: neither the project's nor generated ones."""
    return [page for page in checked_pages() if page.startswith("docs/") and page not in OF_PROJECT]


def sentences(page: str, markdown: str) -> Iterator[Sentence]:
    """Yield the sentences of paragraphs, list items, headings and table cells; code blocks have none."""
    first_line = 0
    for token in _MARKDOWN.parse(markdown):
        first_line = token.map[0] if token.map else first_line
        if token.type != "inline":
            continue
        text, begin = _prose(token), 0
        for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
            if re.sub(r"`[^`]*`[,\s]*", "", text[begin:end]).strip():  # names alone, as in a table, are no sentence
                yield Sentence(page, first_line + text.count("\n", 0, begin) + 1, text[begin:end].strip())
            begin = end


def _prose(block: Token) -> str:
    """Return what a block says; a code span is one word in backticks."""
    parts = []
    for token in block.children or []:
        if token.type == "code_inline":
            parts.append("`" + re.sub(r"[`\s]+", "·", token.content) + "`")
        elif token.type in {"softbreak", "hardbreak"}:
            parts.append("\n")
        elif token.type in {"text", "image"}:
            parts.append(token.content)
    return "".join(parts)


def faults(found: list[Sentence]) -> list[str]:
    """Return a line for each sentence that is too long or has a banned word, and one if too many are long."""
    lines = [str(one) for one in found if one.words > MOST_WORDS]
    lines += [f"{one.page}:{one.line}: banned: {word}" for one in found for word in one.banned]
    long = [one for one in found if one.words > LONG]
    count = sum(one.words > LABEL for one in found)
    if len(long) > LONG_SHARE * count:
        share = f"{len(long)} of {count} sentences have more than {LONG} words, {LONG_SHARE:.0%} may:"
        lines += [share, *(str(one) for one in sorted(long, key=lambda one: -one.words))]
    return lines


def excess(words: Mapping[str, int]) -> list[str]:
    """Return a line if the pages have too many words together: how many, and the longest pages."""
    total = sum(words.values())
    if total <= MOST_WORDS_TOGETHER:
        return []
    longest = sorted(words, key=lambda page: -words[page])[:10]
    pages = ", ".join(f"{page} {words[page]:,}" for page in longest)
    return [f"the users' pages have {total:,} words, {MOST_WORDS_TOGETHER:,} at most; shorten some: {pages}"]


def words_of(pages: Iterable[str]) -> dict[str, int]:
    return {page: len((ROOT / page).read_text().split()) for page in pages}


if __name__ == "__main__":
    pages = sys.argv[1:] or checked_pages()
    wrong = faults([sentence for page in pages for sentence in sentences(page, (ROOT / page).read_text())])
    wrong += excess(words_of(user_pages()))
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    sys.exit(bool(wrong))
