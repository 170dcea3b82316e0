"""The page in the browser, made with gradio: it asks, waits and shows; others do the work."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import gradio as gr  # noqa: TID253 (it reads the types of functions; the server imports this late)

from musigma.app import words
from musigma.app.api import POLL_SECONDS, Service
from musigma.app.boxes import keep_for_boxes
from musigma.app.job_queue import Ticket
from musigma.app.limits import CancelledError
from musigma.app.restorer import RestoreRequest, Result
from musigma.model import load
from musigma.restoration.interactive import DEFAULT_WEIGHTS, weights_for
from musigma.restoration.viewer import template
from musigma.types import ConfigError, MusigmaError

TASKS = [("Enlarge 2 times", 2), ("Enlarge 4 times", 4), ("Clean, same size", 1)]
INTRO = """
<header class="musigma app-intro">
<h1>musigma</h1>
<p>Enlarge or clean a picture, and see how far each of its pixels may be off.</p>
</header>
"""
NOTHING_YET = """
<div class="musigma app-empty">
<p>The result appears here: input and result under one slider, the error map over it, and the value
and interval of every pixel.</p>
<p>No picture at hand? Take one of the examples.</p>
</div>
"""


COMPUTING = """
<div class="musigma app-empty">
<p>The picture appears here as far as it is computed.</p>
</div>
"""


def build_page(service: Service, examples: dict[str, Path]) -> Any:
    """Return the page as gradio blocks.

    Args:
        service: What does the work.
        examples: Pictures to try, by what they show.
    """
    desk = Desk(service)
    with gr.Blocks(title="musigma", analytics_enabled=False) as page:
        gr.HTML(INTRO)
        with gr.Row(elem_classes="app-columns"):
            with gr.Column(scale=1, min_width=300):
                picture = _picture_input()
                _example_buttons(service, examples, picture)
                task = gr.Radio(TASKS, value=2, label="What to do", elem_id="task")
                weights = gr.Dropdown(
                    weights_for(2),
                    value=DEFAULT_WEIGHTS,
                    label="Weights",
                    info="photo allows for blur, noise and JPEG; the others are for clean pictures "
                    "and for white noise.",
                    elem_id="weights",
                )
                noise = gr.Number(
                    label="Noise level in 8-bit levels",
                    info="Leave it empty to have it estimated.",
                    value=None,
                    minimum=0,
                    maximum=255,
                    visible=False,
                    elem_id="noise",
                )
                with gr.Row():
                    start = gr.Button("Restore", variant="primary", elem_id="start", min_width=110)
                    cancel = gr.Button("Cancel", elem_id="cancel", interactive=False, min_width=110)
                state = gr.HTML(words.state("Choose a picture."), elem_id="state")
            with gr.Column(scale=3, min_width=320):
                result = gr.HTML(NOTHING_YET, elem_id="result")
        private: dict[str, Any] = {"api_visibility": "private", "queue": False}
        hidden = {**private, "show_progress": "hidden"}
        task.change(_weights_of_task, task, [weights, noise], **hidden)
        weights.change(_noise_of_weights, [weights, task], noise, **hidden)
        start.click(
            desk.show,
            [picture, task, weights, noise],
            [state, result, start, cancel],
            api_visibility="private",
            show_progress="hidden",
            concurrency_limit=None,
        )
        cancel.click(desk.cancel, None, None, **hidden)
        page.unload(desk.cancel)
        gr.api(  # type: ignore[attr-defined]
            desk.restore_file, api_name="restore", concurrency_limit=None
        )
    page.queue(max_size=4 * service.limits.max_waiting + 4)
    return page


def head() -> str:
    """Return style and script of the page, those of the viewer first."""
    own = files("musigma.app")
    style = template.stylesheet() + own.joinpath("page.css").read_text(encoding="utf-8")
    script = template.script() + own.joinpath("page.js").read_text(encoding="utf-8")
    return f'<style id="musigma-style">{style}</style><script>{script}</script>'


def _picture_input() -> Any:
    picture = gr.Image(
        sources=["upload", "clipboard", "webcam"],
        type="filepath",
        label="Picture",
        placeholder="Drop a picture here, or press to choose one",
        buttons=[],
        height=200,
        alt_text="The picture to be restored",
        elem_id="picture",
    )
    # Hand over the file as it was uploaded: musigma decodes it itself, within its limits.
    picture.preprocess = _path_of  # type: ignore[method-assign]
    return picture


def _file_of(data: Any) -> str:
    """Return the path of an uploaded file; gradio checks a mapping and hands over that mapping."""
    return str(data["path"] if isinstance(data, dict) else data.path)


def _path_of(payload: Any) -> str | None:
    return None if payload is None else payload.path


def _example_buttons(service: Service, examples: dict[str, Path], picture: Any) -> None:
    def copy(path: Path) -> str:
        # Into the folder of the uploads, which is the only one that gradio reads.
        folder = tempfile.mkdtemp(dir=service.workspace.uploads)
        return str(shutil.copy(path, folder))

    with gr.Column(elem_classes="app-examples"):
        gr.HTML('<p class="app-label">Or try an example</p>')
        for title, path in examples.items():
            button = gr.Button(title, size="sm")
            button.click(partial(copy, path), None, picture, api_visibility="private", queue=False)


def _weights_of_task(scale: int) -> tuple[Any, Any]:
    return gr.update(choices=weights_for(scale), value=DEFAULT_WEIGHTS), gr.update(visible=False)


def _noise_of_weights(weights: str, scale: int) -> Any:
    takes_level = weights in weights_for(scale) and load(weights, scale=scale).takes_noise_level
    return gr.update(visible=takes_level)


class Desk:
    """Takes requests of the page to the queue; each visitor has one at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tickets: dict[str, Ticket] = {}

    def cancel(self, visitor: gr.Request) -> None:
        """Cancel what a visitor has asked for."""
        ticket = self._tickets.get(str(visitor.session_hash))
        if ticket is not None:
            ticket.cancel()

    async def show(
        self,
        picture: str | None,
        scale: int,
        weights: str,
        noise_std: float | None,
        visitor: gr.Request,
    ) -> AsyncIterator[list[Any]]:
        """Yield state, result and the two buttons, until the result is there."""
        off, on = gr.update(interactive=False), gr.update(interactive=True)
        idle, busy = (on, off), (off, on)  # the buttons to start and to cancel
        self.cancel(visitor)
        try:
            shown: list[bytes] = []
            ticket = self._submit(picture, scale, weights, noise_std, shown)
            self._tickets[str(visitor.session_hash)] = ticket
            while not ticket.finished.is_set():
                view = words.preview(shown[-1]) if shown else COMPUTING
                yield [_state_of(ticket), view, *busy]
                await _change(ticket, shown)
            report, links, box = ticket.result(0)
            yield [words.state(words.summary(report)), words.result(links, box), *idle]
        except CancelledError:
            yield [words.state("Cancelled."), NOTHING_YET, *idle]
        except MusigmaError as error:
            # Without a result: the one before is of another picture, or of other settings.
            text = str(error)
            yield [words.state(f"{text[:1].upper()}{text[1:]}.", error=True), NOTHING_YET, *idle]

    async def restore_file(
        self,
        picture: gr.FileData,
        scale: int = 2,
        weights: str = DEFAULT_WEIGHTS,
        noise_std: float | None = None,
    ) -> dict[str, Any]:
        """Restore a picture.

        Args:
            picture: The picture file.
            scale: 2, 3 or 4 to enlarge, 1 to clean.
            weights: Name of shipped weights.
            noise_std: Noise level in 8-bit levels for weights that take one.

        Returns:
            The report, with the address of each file under `files`.
        """
        try:
            ticket = self._submit(_file_of(picture), scale, weights, noise_std, [])
            while not ticket.finished.is_set():
                await asyncio.sleep(POLL_SECONDS)
            report, links, _ = ticket.result(0)
        except MusigmaError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return {**report, "files": links}

    def _uploaded(self, picture: str) -> Path:
        """Return the path of a file, which clients may name, if it was uploaded here."""
        path = Path(picture).resolve()
        if not path.is_relative_to(self._service.workspace.uploads.resolve()):
            raise ConfigError("the picture must be uploaded first")
        return path

    def _submit(
        self,
        picture: str | None,
        scale: int,
        weights: str,
        noise_std: float | None,
        shown: list[bytes],
    ) -> Ticket:
        if not picture:
            raise ConfigError("choose a picture or one of the examples first")
        source = self._uploaded(picture)
        takes_level = weights not in (DEFAULT_WEIGHTS, None)
        level = noise_std if takes_level and scale == 1 else None
        request = RestoreRequest(scale=int(scale), weights=str(weights), noise_std=level)
        service = self._service

        def work(ticket: Ticket) -> tuple[dict[str, Any], dict[str, str], str | None]:
            folder = service.workspace.new_result()
            result = service.restorer.restore(
                source,
                request,
                folder,
                name=source.name,
                progress=ticket.report,
                show=shown.append,
            )
            calibration = result.calibration
            knows = calibration is not None and calibration.joint is not None
            box = keep_for_boxes(folder, source, request) if knows else None
            return result.report, links_of(result), box

        return service.queue.submit(work)


def links_of(result: Result) -> dict[str, str]:
    """Return the address of each file of a result."""
    return {name: f"/results/{path.parent.name}/{path.name}" for name, path in result.files.items()}


def _state_of(ticket: Ticket) -> str:
    if ticket.position:
        return words.state(words.waiting(ticket.position), busy=True)
    if ticket.done and ticket.done == ticket.total:
        return words.state("Writing the files.", done=ticket.done, total=ticket.total)
    return words.state("Computing.", busy=not ticket.total, done=ticket.done, total=ticket.total)


async def _change(ticket: Ticket, shown: list[bytes]) -> None:
    """Wait until there is something new to show."""
    before = (ticket.position, ticket.done, len(shown))
    while not ticket.finished.is_set() and before == (ticket.position, ticket.done, len(shown)):
        await asyncio.sleep(POLL_SECONDS)
