"""The model: a network with trained weights, its calibration, and the methods people call."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from musigma.images.conversion import ImageLike, as_batch
from musigma.networks import Network, create, entries, entry
from musigma.networks.weights_file import (
    SHIPPED,
    WeightsFile,
    choose_scale,
    read_weights_file,
    write_weights_file,
)
from musigma.prediction.engines import Engine, make_engine
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import ConfigError, Prediction, WeightsError, nearest
from musigma.uncertainty.calibration import Calibration


class Interval(NamedTuple):
    """The two ends of the interval of every value, ``(N, C, H, W)`` each."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True, kw_only=True)
class Model:
    """A network with trained weights, in evaluation mode.

    Calls of `predict` from several threads do not disturb each other.

    Attributes:
        network: The network.
        name: Registered name of its architecture.
        metadata: What the weights file says about training and data; empty for foreign files.
        digest: SHA-256 of the weights (names, types, shapes and values of all tensors). Two files
            with the same weights have the same digest. It is empty for a network without weights.
        calibration: Turns sigma into a standard deviation and an interval; `None` where the weights
            were never calibrated.

    Example:
        >>> model = load("edsr-baseline", scale=2)
        >>> prediction = model.predict(torch.rand(1, 3, 8, 8))
        >>> low, high = model.interval(prediction, coverage=0.9)
        >>> low.shape
        torch.Size([1, 3, 16, 16])
    """

    network: Network
    name: str
    metadata: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    calibration: Calibration | None = None

    @property
    def scale(self) -> int:
        """Zoom factor."""
        return self.network.scale

    @property
    def has_sigma(self) -> bool:
        """Whether the network predicts its error."""
        return self.network.has_sigma

    @property
    def takes_noise_level(self) -> bool:
        """Whether `predict` needs ``noise_std``."""
        return self.network.takes_noise_level

    def to(self, device: str | torch.device) -> Self:
        """Move the network to a device, such as ``"cuda"``, and return the model itself."""
        self.network.to(device)
        return self

    def predict(
        self,
        image: ImageLike,
        *,
        noise_std: float | None = None,
        engine: str | Engine = "torch",
        tile: int | None = None,
        memory: int = DEFAULT_MEMORY,
        progress: Callable[[int, int], None] | None = None,
    ) -> Prediction:
        """Restore an image or a batch of images.

        Args:
            image: A PIL image, an array ``(H, W)`` or ``(H, W, C)``, or a tensor ``(C, H, W)`` or
                ``(N, C, H, W)``. Integers use their full range (0 to 255 for 8 bits); floats lie in
                ``[0, 1]``.
            noise_std: Standard deviation of the noise in 8-bit levels, such as 25. Denoisers that
                take the noise level need it; others refuse it.
            engine: Name of an engine, or an engine made by `make_engine` for many images.
            tile: Largest side of a tile; by default what `memory` allows.
            memory: Bytes that the forward pass of a tile may need.
            progress: Called after each tile with the number done and the number in all.

        Returns:
            Mean and sigma, ``(N, C, scale * H, scale * W)`` float32 on the CPU. Sigma is `None` for
            a network without a sigma branch.
        """
        batch = as_batch(image)
        runner = make_engine(self.network, engine) if isinstance(engine, str) else engine
        predictions = [
            predict(
                self.network,
                single,
                noise_std=noise_std,
                engine=runner,
                tile=tile,
                memory=memory,
                progress=progress,
            )
            for single in batch[:, None]
        ]
        return _concatenate(predictions)

    def __call__(self, image: ImageLike, **options: Any) -> Prediction:
        """Restore an image; the same as `predict`."""
        return self.predict(image, **options)

    def interval(self, prediction: Prediction, *, coverage: float | None = None) -> Interval:
        """Return the interval of every value at the calibrated coverage.

        Args:
            prediction: What `predict` returned.
            coverage: Share of the values that should lie inside, such as 0.9. The calibration must
                match it; by default it is the calibration's own.
        """
        calibration = self.require_calibration(coverage)
        if prediction.sigma is None:
            raise ConfigError("the prediction has no sigma, so it has no interval")
        half_width = calibration.half_width(prediction.sigma)
        return Interval(prediction.mean - half_width, prediction.mean + half_width)

    def stored_metadata(self) -> dict[str, Any]:
        """Return what a weights file of this model says: its metadata and its calibration."""
        calibration = self.calibration
        return self.metadata | ({"calibration": calibration.to_dict()} if calibration else {})

    def require_calibration(self, coverage: float | None = None) -> Calibration:
        """Return the calibration, or say how to get one for this coverage."""
        calibration = self.calibration
        if calibration is None or coverage not in (None, calibration.coverage):
            state = f"calibrated for {calibration.coverage}" if calibration else "not calibrated"
            wanted = f" --coverage {coverage}" if coverage is not None else ""
            raise ConfigError(
                f"{self.name} is {state}; 'musigma calibrate{wanted}' fits it to held-out images"
            )
        return calibration


def load(model: str | Path, *, scale: int | None = None, value_range: float | None = None) -> Model:
    """Load shipped weights by name, or any weights file by its path.

    Args:
        model: A registered name, a weights file of musigma, or a released file of a known network.
            A file that is called like a network must be given with its folder, such as
            ``./edsr-baseline``.
        scale: Zoom factor; needed for a name or a file that serves several.
        value_range: Range that the layers of a bare state dict work in, where the file does not
            tell it: 255 for most released networks, 1 for networks trained with musigma.

    Example:
        >>> load("bicubic", scale=2).scale
        2
    """
    name = str(model)
    known = [info.name for info in entries()]
    if name in known:
        return _load_name(name, scale)
    path = Path(model)
    if path.is_file():
        return load_file(path, scale=scale, value_range=value_range)
    if path.suffix or path.name != name:  # no network is called so
        raise WeightsError(f"there is no weights file {name}")
    raise ConfigError(
        f"{name!r} is neither a weights file nor the name of a network; {nearest(name, known)}"
    )


def load_file(path: Path, *, scale: int | None = None, value_range: float | None = None) -> Model:
    """Load a weights file: one of ours, or a foreign one recognised by its keys."""
    return _model_of(read_weights_file(path, scale=scale, value_range=value_range))


def save(path: str | Path, model: Model | Network, *, half: bool = False, **metadata: Any) -> None:
    """Write a weights file atomically.

    Args:
        path: Where; the suffix must be ``.safetensors``.
        model: A model, whose metadata and calibration are kept, or a bare network.
        half: Store half-precision values at half the size; loading makes them float32 again.
        metadata: Further entries, such as ``training=``, ``data=``, ``licence=``.
    """
    if isinstance(model, Model):
        stored = model.stored_metadata() | metadata
        write_weights_file(Path(path), model.network, half=half, **stored)
    else:
        write_weights_file(Path(path), model, half=half, **metadata)


def _load_name(name: str, scale: int | None) -> Model:
    scale = choose_scale(name, scale, entry(name).scales)
    shipped = SHIPPED / f"{name}-x{scale}.safetensors"
    if shipped.is_file():
        return load_file(shipped, scale=scale)
    network = create(name, scale=scale)
    if any(True for _ in network.parameters()):
        raise WeightsError(
            f"no trained weights ship for {name} x{scale}; pass a weights file, "
            "or train one with 'musigma train'"
        )
    return Model(network=network.eval(), name=name)


def _model_of(content: WeightsFile) -> Model:
    metadata = dict(content.metadata)
    stored = metadata.pop("calibration", None)
    return Model(
        network=content.network.eval(),
        name=content.network.build_spec.name,
        metadata=metadata,
        digest=content.digest,
        calibration=Calibration.from_dict(stored) if stored else None,
    )


def _concatenate(predictions: list[Prediction]) -> Prediction:
    if len(predictions) == 1:
        return predictions[0]
    means, sigmas = zip(*predictions, strict=True)
    sigma = None if sigmas[0] is None else torch.cat(sigmas)
    return Prediction(torch.cat(means), sigma)


def shipped_models() -> Iterator[Path]:
    """Yield the weights files that ship with the package."""
    yield from sorted(SHIPPED.glob("*.safetensors"))
