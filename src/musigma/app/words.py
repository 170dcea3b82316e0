"""What the page says, as HTML: the state of a request, the result and its files."""

import base64
from html import escape
from typing import Any

FILE_TITLES = {
    "picture": "Picture (PNG)",
    "sigma": "Sigma (16-bit PNG)",
    "report": "Report (one HTML file)",
}


def state(
    text: str, *, busy: bool = False, done: int = 0, total: int = 0, error: bool = False
) -> str:
    """Return a line about the request.

    Args:
        text: The line.
        busy: Whether to show a bar that moves, where the number of tiles is not known.
        done: Number of tiles that are done.
        total: Number of tiles; a bar shows how many of them are done.
        error: Whether the line tells what is wrong.

    Example:
        >>> state("Choose a picture.", error=True)
        '<div class="musigma app-state app-error" role="status"><p>Choose a picture.</p></div>'
    """
    bar = '<div class="app-working" role="progressbar" aria-label="Working"></div>' if busy else ""
    if total:
        label = f"{done} of {total} tiles"
        bar = f'<progress max="{total}" value="{done}" aria-label="{label}"></progress>'
        bar += f'<p class="mu-quiet">{label}</p>'
    name = "musigma app-state app-error" if error else "musigma app-state"
    return f'<div class="{name}" role="status"><p>{escape(text)}</p>{bar}</div>'


def waiting(position: int) -> str:
    """Say how many requests are before this one.

    Example:
        >>> waiting(1)
        'Waiting: 1 request is before this one.'
    """
    if position == 1:
        return "Waiting: 1 request is before this one."
    return f"Waiting: {position} requests are before this one."


def preview(jpeg: bytes) -> str:
    """Return the picture as far as it is done."""
    source = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    alt = "The result as far as it is computed"
    return f'<img class="app-preview" src="{source}" alt="{alt}">'


def result(links: dict[str, str], box: str | None = None) -> str:
    """Return the downloads and a place for the viewer.

    The script of the page fetches the report and shows the viewer of it.

    Args:
        links: Address of each file, by what it holds.
        box: Address that tells the interval of the mean of a box, where there is one.
    """
    asks = "" if box is None else f' data-box="{escape(box)}"'
    downloads = "".join(
        f'<a href="{escape(link)}" download>{FILE_TITLES[name]}</a>' for name, link in links.items()
    )
    return (
        '<div class="musigma app-result">'
        f'<p class="app-downloads"><span class="mu-quiet">Download</span> {downloads}</p>'
        f'<div data-report="{escape(links["report"])}"{asks}>'
        '<p class="mu-quiet">Opening the viewer.</p></div></div>'
    )


def summary(report: dict[str, Any]) -> str:
    """Say in one line what was done.

    Example:
        >>> summary({"width": 60, "height": 40, "seconds": 1.25, "weights": "photo",
        ...          "noise_std": None, "noise_estimated": False})
        'Done in 1.2 s: 60 x 40 pixels with photo.'
    """
    text = f"Done in {report['seconds']:.1f} s: {report['width']} x {report['height']} pixels"
    text += f" with {report['weights']}"
    if report["noise_std"] is not None:
        how = "estimated " if report["noise_estimated"] else ""
        text += f", {how}noise level {report['noise_std']:.3g}"
    return text + "."
