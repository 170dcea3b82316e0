"""What the page says, as HTML: the state of a request, the result, its promise, its files."""

import base64
from html import escape
from typing import Any

FILE_TITLES = {
    "picture": "Picture (PNG)",
    "sigma": "Sigma (16-bit PNG)",
    "report": "Report (one HTML file)",
}


def state(text: str, *, done: int = 0, total: int = 0, error: bool = False) -> str:
    """Return a line about the request, with a bar where the number of tiles is known.

    Example:
        >>> state("2 requests are before this one")
        '<p class="musigma-state">2 requests are before this one</p>'
    """
    label = f"{done} of {total} tiles"
    bar = ""
    if total:
        bar = f'<progress max="{total}" value="{done}" aria-label="{label}">{label}</progress>'
    name = "musigma-state musigma-error" if error else "musigma-state"
    return f'<p class="{name}">{escape(text)}</p>{bar}'


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
    return f'<img class="musigma-preview" src="{source}" alt="{alt}">'


def promise(report: dict[str, Any]) -> str:
    """Say what the intervals promise for this picture, or why they promise nothing."""
    parts = []
    if report["promise"]:
        parts.append(f"<p><strong>What is promised.</strong> {_sentence(report['promise'])}</p>")
    elif report["promise_reason"]:
        reason = _sentence(report["promise_reason"])
        parts.append(f"<p><strong>Nothing is promised for this picture:</strong> {reason}</p>")
    else:
        parts.append("<p>These weights are not calibrated; nothing is promised.</p>")
    parts += [f"<p><strong>Note.</strong> {_sentence(text)}</p>" for text in report["warnings"]]
    return f'<div class="musigma-promise">{"".join(parts)}</div>'


def result(report: dict[str, Any], links: dict[str, str]) -> str:
    """Return the result: the page that compares, the promise and the downloads.

    Args:
        report: Of the result.
        links: Address of each file, by what it holds.
    """
    downloads = "".join(
        f'<a href="{escape(link)}" download>{FILE_TITLES[name]}</a>' for name, link in links.items()
    )
    title = "Result: input and result side by side, error map, values with their intervals"
    return (
        f'<iframe class="musigma-viewer" src="{escape(links["report"])}" title="{title}"></iframe>'
        f"{promise(report)}"
        f'<p class="musigma-downloads"><span>Download</span>{downloads}</p>'
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


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return escape(text[:1].upper() + text[1:]) + "."
