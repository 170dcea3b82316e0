import pytest

from musigma.cli.common import parse_size, print_error
from musigma.types import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1073741824", 2**30),
        ("2GiB", 2**31),
        ("500MB", 500_000_000),
        (" 1.5 gib ", 3 * 2**29),
        (".5k", 500),
        ("7b", 7),
    ],
)
def test_sizes_with_units_are_read_as_bytes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1..5GiB", "-1", "0", "0.2", "1TB", "nan", "9" * 400])
def test_texts_that_are_no_size_are_refused(text):
    with pytest.raises(ConfigError, match="expected a size such as 2GiB or 500MB, got "):
        parse_size(text)


def test_an_error_is_one_line_whatever_it_holds(capsys):
    print_error("[bold]two\nlines[/bold] :boom: " + "long " * 50)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: [bold]two lines[/bold] :boom: " + "long " * 50 + "\n"


def test_an_error_speaks_of_options(capsys):
    """In Python the same error speaks of arguments."""
    print_error("set `memory` or `noise_std`; `info` is no option")
    assert capsys.readouterr().err == "error: set --memory or --noise-std; `info` is no option\n"
