"""What a comparison is written to: a page, a summary for a pull request, a report for CI."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from reports.account import Account
from reports.comparison_page import write_comparison
from reports.junit import junit as as_junit
from reports.markdown import comparison_markdown
from results import document


def write(one: Account, *, page: Path | None, markdown: Path | None, junit: Path | None) -> None:
    """Writes what is asked for; Markdown is added to what the file holds, as a step's summary is.

    Raises FolderError where something cannot be written.
    """
    if markdown:
        with document.writing(markdown), markdown.open("a") as file:
            file.write(comparison_markdown(one))
    if junit:
        with document.writing(junit):
            junit.write_text(as_junit(one))
    if page:
        write_comparison(one, page)


def pages(found: Sequence[Account], path: Path) -> Iterator[Path]:
    """Writes a page for each comparison: the second of `page.html` is `page-2.html`."""
    for number, one in enumerate(found, 1):
        place = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        write_comparison(one, place)
        yield place
