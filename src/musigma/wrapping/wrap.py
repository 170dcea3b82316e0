"""Give error bars to a network of somebody else: ask it, learn sigma, calibrate.

The mean is the answer of the network, to the bit. A small side network sees the input and the
answer, and learns by the likelihood of the errors how large they are.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from musigma.datasets.catalog import Dataset, Item, describe_data, find_dataset
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, read_pair
from musigma.evaluation.selection import select_inputs
from musigma.functional.noise import check_seed
from musigma.functional.objectives import gaussian_nll
from musigma.functional.scores import check_share
from musigma.images.decoding import declared_size
from musigma.model import Model
from musigma.networks import SigmaBranch, WithSigma, with_sigma
from musigma.networks.black_box import BlackBox, black_box_features
from musigma.networks.weights_file import digest_of
from musigma.prediction.device import select_device
from musigma.prediction.foreign import (
    RANGES,
    TYPES_WITH_RANGE,
    ForeignNetwork,
    NetworkLike,
    open_network,
)
from musigma.training.optimizers import Optimizer
from musigma.training.schedule import cosine_share
from musigma.types import ConfigError, DataError
from musigma.uncertainty.conformal import images_needed
from musigma.uncertainty.methods import DEFAULT_COVERAGE
from musigma.wrapping.answers import Answers, choose_patch, collect_answers

MIN_TRAINING = 8
"""Fewest pictures from which sigma is learned."""

MIN_HELD_OUT = 20
"""Fewest pictures of the calibration. With the fewest that the promise allows, 9 for 0.9, intervals
would be as wide as the worst picture needs."""

MAX_HELD_OUT = 100
"""Most pictures of the calibration: as many as every coverage needs, 0.99 included."""

HELD_OUT_STEP = 4
"""Every fourth picture is held out for the calibration, if there are enough."""

QUERY_SHARE = 0.4
"""Share of the time that may go into running the network."""

NUM_RANGE_PAIRS = 4
"""Pictures that decide whether the values of a network end at 1 or at 255."""

MAX_GRADIENT = 1.0
"""Largest norm of a gradient; a few wild values must not undo what was learned."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class WrapSettings:
    """How the side network is made and trained.

    Attributes:
        width: Channels of the side network.
        depth: Convolutions before its last one.
        queries: Most crops that the network is asked about.
        patch: Side of a crop of the input in pixels; twice as much at scale 1.
        steps: Most updates.
        minutes: Time for asking and learning; the calibration comes on top.
        batch: Crops of an update.
        learning_rate: The highest.
        optimizer: As in recipes.
        betas, epsilon: Of Adam.
        warmup: Share of the updates over which the learning rate rises.
        seed: Decides initial weights, crops and batches.
    """

    width: int = 32
    depth: int = 4
    queries: int = 500
    patch: int = 32
    steps: int = 2000
    minutes: float = 10.0
    batch: int = 8
    learning_rate: float = 7e-3
    optimizer: Literal["adam", "muon"] = "muon"
    betas: tuple[float, float] = (0.9, 0.99)
    epsilon: float = 1e-8
    warmup: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse budgets that are none."""
        for name in ("minutes", "steps", "queries", "batch"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above zero, got {getattr(self, name)}")
        check_seed(self.seed)


def wrap(
    network: NetworkLike,
    data: str | Path,
    *,
    scale: int | None = None,
    low: str | Path | None = None,
    degradations: Sequence[str] = (),
    noise_std: float | None = None,
    held_out: str | Path | None = None,
    value_range: float | None = None,
    trust_network: bool = False,
    coverage: float = DEFAULT_COVERAGE,
    settings: WrapSettings | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    report: Report = lambda _: None,
) -> Model:
    """Return a model whose mean is that of a network of somebody else, with error bars.

    The model has all methods of other models: `predict`, `std`, `interval`, `check`, `save`. What
    it saves are the error bars; ``musigma.load(file, network=network)`` puts both together again.

    Args:
        network: An ONNX file; a Python function, or its name as ``package.module:function`` or
            ``file.py:function``; a TorchScript file, if trusted; or a weights file that spandrel
            knows. A function takes a tensor ``(1, 3, H, W)`` in ``[0, 1]`` and returns the picture
            as a tensor, as an array ``(H, W, 3)`` or as a PIL image.
        data: Sharp pictures, a data set or a folder, that the network was not trained on.
        scale: Zoom factor; by default a test picture tells it.
        low: Folder with the inputs, named as the pictures of `data`.
        degradations: How inputs are made from the pictures, as text, such as ``"area | jpeg(75)"``;
            by default they are shrunk by bicubic.
        noise_std: For a network of scale 1, the level of white noise that is added.
        held_out: Pictures for the calibration; by default some of `data` are held out.
        value_range: Whether the values of a file's network end at 1 or at 255; by default the
            pictures tell it.
        trust_network: Whether a TorchScript file, which is a program, may be run.
        coverage: Share of the values that the intervals hold where nothing else is asked for.
        settings: Size and training of the side network.
        device: Where the side network learns and runs.
        progress: Called with number, count and a text, again and again.
        report: Called with a line about each part of the work.

    Example:
        >>> def double(image):
        ...     return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        >>> wrap(double, "photos", scale=4)  # what a network does is found out by asking it
        Traceback (most recent call last):
        musigma.types.ConfigError: double enlarges by 2, not by 4
    """
    check_share("coverage", coverage)
    settings = settings or WrapSettings()
    options: dict[str, Any] = {"scale": scale, "trust": trust_network}
    foreign = open_network(network, value_range=value_range, **options)
    box = _box_of(foreign)
    dataset, protocols = select_inputs(
        box, data, low=low, degradations=degradations, noise_std=noise_std
    )
    if value_range is None and foreign.origin["type"] in TYPES_WITH_RANGE:
        foreign = _choose_range(network, foreign, dataset, protocols[0], options)
        box = _box_of(foreign)
    does = f"enlarges by {foreign.scale}" if foreign.scale > 1 else "keeps the size of pictures"
    report(f"{foreign.origin['name']} {does}")
    training, calibration_set = _split(dataset, box, held_out, low, protocols, coverage)
    _check_answers(box, calibration_set, protocols[0])
    learned = learn_sigma(
        box, training, protocols, settings, device=device, progress=progress, report=report
    )
    model = Model(
        network=learned,
        name=str(foreign.origin["name"]),
        metadata=_metadata(foreign, training, protocols, settings),
        digest=digest_of(learned),
    )
    report(f"calibrating on {len(calibration_set.items)} pictures of {calibration_set.name}")
    calibration = calibrate(model, calibration_set, protocols, coverage=coverage, progress=progress)
    return replace(model, calibration=calibration)


def learn_sigma(
    box: BlackBox,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    settings: WrapSettings,
    *,
    device: str = "auto",
    progress: Progress | None = None,
    report: Report = lambda _: None,
) -> WithSigma:
    """Ask a network about crops of pictures, and train a sigma branch on the answers.

    The other arguments are those of `wrap`; the network is open and the pictures are found already.
    """
    started = time.monotonic()
    generator = torch.Generator().manual_seed(settings.seed)
    wanted = settings.patch if box.scale > 1 else 2 * settings.patch
    answers = collect_answers(
        box,
        dataset,
        protocols,
        patch=choose_patch(dataset, box.scale, largest=wanted),
        count=settings.queries,
        seconds=60 * QUERY_SHARE * settings.minutes,
        generator=generator,
        progress=progress,
    )
    num_crops, side = len(answers.mean), answers.degraded.shape[-1]
    report(f"asked about {num_crops} crops of {side} x {side} pixels")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = with_sigma(box, width=settings.width, depth=settings.depth)
    network.to(select_device(device))
    num_steps = _train(network, answers, settings, generator, started=started, progress=progress)
    report(f"learned sigma in {num_steps} updates")
    return network.eval()


def _train(
    network: WithSigma,
    answers: Answers,
    settings: WrapSettings,
    generator: torch.Generator,
    *,
    started: float,
    progress: Progress | None,
) -> int:
    """Train the branch until the updates or the minutes are used up; return the updates done."""
    branch = network.branch.train()
    _start_at(branch, answers.root_mean_square_error())
    device = next(branch.parameters()).device
    rate = torch.zeros((), device=device)
    optimizer = Optimizer(settings, list(branch.parameters()), rate)
    asked_until = time.monotonic()
    seconds = max(60 * settings.minutes - (asked_until - started), 1e-9)
    step, used = 0, 0.0
    while step == 0 or used < 1:
        if progress:
            progress(step, settings.steps, "learning sigma")
        rate.fill_(settings.learning_rate * cosine_share(used, warmup=settings.warmup))
        degraded, mean, target = (
            part.to(device) for part in answers.draw(settings.batch, generator)
        )
        sigma = branch(black_box_features(degraded, mean, network.scale))
        loss = gaussian_nll(mean, target, sigma).mean()
        branch.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(branch.parameters(), MAX_GRADIENT)
        if bool(norm.isfinite()):
            with torch.no_grad():
                optimizer.step()
        step += 1
        used = max(step / settings.steps, (time.monotonic() - asked_until) / seconds)
    return step


@torch.no_grad()
def _start_at(branch: SigmaBranch, sigma: float) -> None:
    """Let a branch begin with about the best constant; far from it the likelihood is too steep."""
    last = branch.upsampler[0]
    assert isinstance(last, torch.nn.Conv2d)
    assert last.bias is not None
    last.weight.mul_(0.1)
    last.bias.fill_(math.log(sigma / (1 - sigma)))


def _box_of(foreign: ForeignNetwork) -> BlackBox:
    return BlackBox(foreign.function, scale=foreign.scale, answer=foreign.answer)


def _choose_range(
    network: NetworkLike,
    foreign: ForeignNetwork,
    dataset: Dataset,
    protocol: Protocol,
    options: dict[str, Any],
) -> ForeignNetwork:
    """Return the network with the range of values by which it restores some pictures best."""
    candidates = [foreign]
    for value_range in RANGES:
        if value_range != foreign.origin["value_range"]:
            try:
                candidates.append(open_network(network, value_range=value_range, **options))
            except ConfigError:  # the other range does not work at all
                continue
    if len(candidates) == 1:
        return foreign
    return min(candidates, key=lambda each: _mean_error(each, dataset, protocol))


def _mean_error(foreign: ForeignNetwork, dataset: Dataset, protocol: Protocol) -> float:
    total = 0.0
    for item in dataset.items[:NUM_RANGE_PAIRS]:
        degraded, target = read_pair(item, protocol)
        side = min(64, *degraded.shape[-2:])
        answer = foreign.function(degraded[..., :side, :side].contiguous())
        part = target[..., : side * foreign.scale, : side * foreign.scale]
        total += float((answer - part).abs().mean())
    return total


def _split(
    dataset: Dataset,
    box: BlackBox,
    held_out: str | Path | None,
    low: str | Path | None,
    protocols: Sequence[Protocol],
    coverage: float,
) -> tuple[Dataset, Dataset]:
    """Return the pictures to learn from and those of the calibration, or say how many it takes."""
    needed = max(MIN_HELD_OUT, images_needed("conformal-risk-control", coverage, None))
    if held_out is None:
        return split_pictures(dataset, needed)
    if low is not None:
        raise ConfigError(
            "with --low, the pictures of the calibration are held out of --data; leave --held-out "
            "out"
        )
    made = protocols[0].degradation is not None
    calibration_set = find_dataset(held_out, scale=None if made else box.scale)
    _check_enough(len(dataset.items), MIN_TRAINING, f"{dataset.name}, to learn from,")
    _check_enough(len(calibration_set.items), needed, f"{calibration_set.name}, to calibrate on,")
    return dataset, calibration_set


def _check_answers(box: BlackBox, dataset: Dataset, protocol: Protocol) -> None:
    """Ask about one whole picture of the calibration before the learning begins.

    Some networks take only pictures whose sides are multiples of a number. So the sides of this
    picture have the fewest factors of two.
    """

    def evenness(item: Item) -> int:
        size = declared_size(item.target)
        sides = (size.height // box.scale, size.width // box.scale)
        return min((side & -side) for side in sides)

    degraded = read_pair(min(dataset.items, key=evenness), protocol).degraded
    try:
        with torch.inference_mode():
            box.ask(degraded)
    except ConfigError as error:
        advice = "a network for special sizes needs a Python function that pads and crops"
        raise ConfigError(f"{error}; {advice}") from error


def split_pictures(dataset: Dataset, needed: int) -> tuple[Dataset, Dataset]:
    """Divide pictures into those to learn from and those of the calibration.

    Args:
        dataset: All pictures.
        needed: Fewest pictures of the calibration.
    """
    count = len(dataset.items)
    _check_enough(count, MIN_TRAINING + needed, dataset.name)
    num_held_out = min(max(needed, count // HELD_OUT_STEP), MAX_HELD_OUT)
    chosen = {round((number + 0.5) * count / num_held_out - 0.5) for number in range(num_held_out)}
    parts = [
        tuple(item for number, item in enumerate(dataset.items) if (number in chosen) == wanted)
        for wanted in (False, True)
    ]
    learning, calibration = (replace(dataset, items=part) for part in parts)
    return learning, calibration


def _check_enough(count: int, needed: int, name: str) -> None:
    if count < needed:
        raise DataError(f"{name} has {count} pictures, and it takes at least {needed}")


def _metadata(
    foreign: ForeignNetwork,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    settings: WrapSettings,
) -> dict[str, Any]:
    inputs = [protocol.inputs for protocol in protocols]
    training = asdict(settings) | {"data": describe_data(dataset), "degradations": inputs}
    return {"wraps": dict(foreign.origin), "training": training}
