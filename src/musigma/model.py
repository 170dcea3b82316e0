"""The model: a network with trained weights, its calibration, and the methods people call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from musigma.functional.equal_channels import gray_if_equal
from musigma.functional.noise import check_seed
from musigma.functional.picture_statistics import measure
from musigma.hub import (
    WEIGHTS,
    Measurement,
    check_results,
    find_folder,
    name_in,
    read_config,
    write_folder,
)
from musigma.images.conversion import ImageLike, as_batch
from musigma.model_file import read_model, read_model_file
from musigma.networks import Network
from musigma.networks.joint_head import JointHead
from musigma.networks.weights_file import write_weights_file
from musigma.prediction.device import select_device
from musigma.prediction.engines import (
    Engine,
    EngineCache,
    export_onnx,
    make_engine,
    make_onnx_engine,
)
from musigma.prediction.engines.base import device_of
from musigma.prediction.foreign import NetworkLike
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import ConfigError, Prediction
from musigma.uncertainty.calibration import Calibration, sigma_of
from musigma.uncertainty.guard import Reference, unlike
from musigma.uncertainty.joint import Correlation, JointErrors
from musigma.uncertainty.joint_prediction import JointPrediction, draw_pictures, predict_errors
from musigma.uncertainty.quantities import JointCalibration
from musigma.uncertainty.ramps import half_width_by_ramps


class Interval(NamedTuple):
    """The two ends of the interval of every value, ``(N, C, H, W)`` each."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True, kw_only=True, repr=False)
class Model:
    """A network with trained weights, in evaluation mode.

    Several threads may call `predict` of one model; each gets the result of its own image.

    Attributes:
        network: The network. Without weights (on the device ``meta``) for an ONNX file.
        name: Name of the shipped weights, or of the network.
        metadata: What the weights file says about training and data; empty for foreign files.
        digest: SHA-256 of the weights (names, types, shapes and values of all tensors). Two files
            with the same weights have the same digest. It is empty for a network without weights.
        calibration: Turns sigma into a standard deviation and an interval; `None` where the weights
            were never calibrated.
        onnx: Content of the ONNX file that the model was loaded from; `None` for other models.
        joint_head: Predicts how errors are correlated; `None` where the weights have none.

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
    onnx: bytes | None = None
    joint_head: JointHead | None = None
    _engines: EngineCache = field(default_factory=EngineCache, init=False, compare=False)

    def __repr__(self) -> str:
        calibration = self.calibration
        calibrated = f"{calibration.coverage:g} ({calibration.method})" if calibration else None
        return (
            f"Model({self.name!r}, scale={self.scale}, has_sigma={self.has_sigma}, "
            f"calibrated_for={calibrated}, device={str(self.device)!r})"
        )

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

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return torch.device("cpu") if self.onnx is not None else device_of(self.network)

    def to(self, device: str | torch.device) -> Self:
        """Move the network to a device and return the model itself.

        Args:
            device: ``cpu``, ``cuda``, ``cuda:N``, ``mps``, or ``auto`` for a GPU if there is one.

        Example:
            >>> load("bicubic", scale=2).to("cpu").device
            device(type='cpu')
        """
        if self.onnx is None:
            self.network.to(select_device(device))
            if self.joint_head is not None:
                self.joint_head.to(self.device)
        elif str(device) not in ("auto", "cpu"):
            raise ConfigError(
                f"a model from an ONNX file runs on the CPU, not on {device}; load its weights file"
            )
        return self

    def engine(
        self, name: str | None = None, *, report: Callable[[str], None] = lambda _: None
    ) -> Engine:
        """Return what runs the model. It is made once and kept.

        Args:
            name: As for `musigma.prediction.engines.make_engine`; by default ``torch``, or ``onnx``
                for a model from an ONNX file, which runs by ``onnx`` and ``openvino`` alone.
            report: Called with a line for each engine that ``auto`` measured.
        """
        name = name or ("torch" if self.onnx is None else "onnx")

        def make() -> Engine:
            if self.onnx is not None:
                return make_onnx_engine(self.onnx, name)
            return make_engine(self.network, name, report=report)

        return self._engines.get(name, self.network, make)

    def predict(
        self,
        image: ImageLike,
        *,
        noise_std: float | None = None,
        engine: str | Engine | None = None,
        tile: int | None = None,
        memory: int = DEFAULT_MEMORY,
        progress: Callable[[int, int], None] | None = None,
    ) -> Prediction:
        """Restore an image or a batch of images.

        Args:
            image: A PIL image, an array ``(H, W)``, ``(H, W, C)`` or ``(N, H, W, C)``, or a tensor
                ``(C, H, W)`` or ``(N, C, H, W)``. Integers use the full range of their type (0 to
                255 for 8 bits); floats lie in ``[0, 1]``.
            noise_std: Standard deviation of the noise in 8-bit levels, such as 25. Denoisers that
                take the noise level need it; others refuse it.
            engine: Name of an engine as for the method `engine`, or an engine. An engine that is
                named is made at the first call and used again by later calls.
            tile: Largest side of a tile; by default as large as `memory` allows.
            memory: Bytes that the forward pass of a tile may need.
            progress: Called after each tile with the number done and the number in all.

        Returns:
            Mean and sigma, ``(N, C, scale * H, scale * W)`` float32 on the CPU. Sigma is `None` for
            a network without a sigma branch.
        """
        return predict(
            self.network,
            image,
            noise_std=noise_std,
            engine=self.engine(engine) if engine is None or isinstance(engine, str) else engine,
            tile=tile,
            memory=memory,
            progress=progress,
        )

    def __call__(self, image: ImageLike, **options: Any) -> Prediction:
        """Restore an image; the same as `predict`."""
        return self.predict(image, **options)

    def std(self, prediction: Prediction) -> Tensor:
        """Return the calibrated standard deviation of every value.

        Sigma itself is what the network was trained to predict, and no standard deviation.

        Args:
            prediction: What `predict` returned.

        Example:
            >>> model = load("edsr-baseline", scale=2)
            >>> model.std(model.predict(torch.rand(1, 3, 8, 8))).shape
            torch.Size([1, 3, 16, 16])
        """
        return self.require_calibration().std(sigma_of(prediction))

    def interval(self, prediction: Prediction, *, coverage: float | None = None) -> Interval:
        """Return the interval of every value at the calibrated coverage.

        What the calibration promises (`Calibration.promise`) holds under its conditions
        (`Calibration.conditions`): for images like the held-out ones, degraded as those were, and
        predicted by this model in float32 without a self-ensemble.

        Args:
            prediction: What `predict` returned.
            coverage: Share of the values that should lie inside, one of `Calibration.coverages`
                such as 0.5 or 0.95; by default `Calibration.coverage`.
        """
        half_width = self.require_calibration(coverage).half_width(sigma_of(prediction))
        return Interval(prediction.mean - half_width, prediction.mean + half_width)

    def check(self, image: ImageLike, *, noise_std: float | None = None) -> list[str]:
        """Say how an image differs from those that the model was calibrated on.

        Noise, sharpness and JPEG blocks of the image are compared with those of the calibration's
        inputs. Where something differs, what the calibration promises does not hold for the image.

        Args:
            image: One image, as for `predict`.
            noise_std: The noise level that `predict` is told, for models that take one.

        Returns:
            Whole sentences; none where the image is like those, or where the calibration does not
            say what those were like.

        Example:
            >>> flat = torch.full((1, 3, 64, 64), 0.5)
            >>> load("edsr-baseline", scale=2).check(flat)
            []
        """
        reference = self.require_calibration().reference
        if reference is None:
            return []
        statistics = measure(gray_if_equal(as_batch(image)))
        return unlike(Reference.from_dict(reference), statistics, noise_std=noise_std)

    def predict_joint(
        self,
        image: ImageLike,
        *,
        noise_std: float | None = None,
        tile: int | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> JointPrediction:
        """Restore one picture, and say how its errors are correlated.

        A gray picture comes back with three equal channels. Where the model is calibrated for
        bicubic shrinking, the errors allow for what the input says about them.

        Args:
            image: One picture as for `predict`.
            noise_std: As for `predict`.
            tile: As for `predict`.
            memory: As for `predict`.

        Example:
            >>> model = load("edsr-baseline", scale=2)
            >>> prediction = model.predict_joint(torch.rand(1, 3, 16, 16))
            >>> box = prediction.mean_over((4, 8, 16, 12))
            >>> box.low < box.value < box.high
            True
        """
        joint = self.require_joint()
        prediction, errors = self.predict_errors(
            image, joint.correlation, noise_std=noise_std, tile=tile, memory=memory
        )
        return JointPrediction(prediction, errors, joint, self.require_calibration().coverage)

    def predict_errors(
        self, image: ImageLike, correlation: Correlation | None, **options: Any
    ) -> tuple[Prediction, JointErrors]:
        """Restore one picture, and return the joint distribution of its errors.

        Args:
            image: One picture as for `predict`.
            correlation: Of the errors; `None` for that which the joint head predicts.
            options: ``noise_std``, ``tile`` and ``memory`` as for `predict`.
        """
        return predict_errors(
            self.network,
            image,
            calibration=self.require_calibration(),
            fields=self.joint_head if correlation is None else correlation,
            **options,
        )

    def sample(self, image: ImageLike, num_samples: int, *, seed: int = 0) -> Tensor:
        """Draw pictures that the input may come from.

        They differ as the truth may differ from the mean. If the model is calibrated for bicubic
        shrinking, each of them gives the input back when it is shrunk so; other degradations are
        not known well enough for that.

        Samples come in pairs whose errors have opposite signs, so that the mean of an even number
        of them is that of the model, except for values that are cut off at 0 and 1.

        Args:
            image: One picture as for `predict`.
            num_samples: How many.
            seed: Of the random numbers.

        Returns:
            ``(num_samples, C, H, W)`` in ``[0, 1]``.
        """
        if num_samples < 1:
            raise ConfigError(f"`num_samples` must be at least 1, got {num_samples}")
        check_seed(seed)
        return draw_pictures(self.predict_joint(image), num_samples, seed=seed, device=self.device)

    def save(self, path: str | Path, *, half: bool = False, **metadata: Any) -> None:
        """Write a weights file with the metadata and calibration of the model, atomically.

        Args:
            path: Where; the suffix must be ``.safetensors``.
            half: Store half-precision values at half the size; loading makes them float32 again.
            metadata: Further entries, such as ``training=``, ``data=``, ``licence=``.
        """
        if self.onnx is not None:
            raise ConfigError("a model from an ONNX file has no weights to save; copy the file")
        stored = self.stored_metadata() | metadata
        write_weights_file(Path(path), self.network, half=half, head=self.joint_head, **stored)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None) -> "Model":
        """Load a folder of `save_pretrained`, or a repository of the Hugging Face hub.

        The weights are read as `musigma.load` reads them. A repository needs the extra ``hub``.

        Args:
            source: The folder, or the repository as ``OWNER/NAME``.
            revision: Branch, tag or commit of the repository.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     load("edsr-baseline", scale=2).save_pretrained(folder)
            ...     Model.from_pretrained(folder).scale
            2
        """
        folder = find_folder(source, revision=revision)
        model = load_file(folder / WEIGHTS)
        config = read_config(folder, model.network)
        return replace(model, name=name_in(config, model.name))

    def save_pretrained(
        self, folder: str | Path, *, results: Sequence[Measurement] = (), half: bool = False
    ) -> None:
        """Write ``config.json``, ``model.safetensors`` and a model card into a folder.

        Args:
            folder: Where; it is made if it does not exist.
            results: Records for the card, such as those of `musigma.evaluation.load_record`. They
                must have been measured with these weights.
            half: As for `save`.
        """
        self._require_own_network("a folder for the hub")
        folder = Path(folder)
        check_results(results, name=self.name, digest=self.digest)
        self.save(folder / WEIGHTS, half=half)
        write_folder(
            folder,
            self.network,
            name=self.name,
            digest=load_file(folder / WEIGHTS).digest,  # half precision gives another one
            metadata=self.stored_metadata(),
            promise=self.calibration.promise if self.calibration else None,
            results=results,
        )

    def export(self, path: str | Path, *, opset: int | None = None) -> None:
        """Write the model as an ONNX file, atomically; `load` reads it back.

        The file takes ``input`` and gives ``mean`` and, with a sigma branch, ``sigma``; a model
        that is calibrated also gives ``half_width``, the half-width of the interval. With a joint
        head there are ``joint_weights``, and the constants of the fields are in the metadata.

        Args:
            path: Where; the suffix must be ``.onnx``.
            opset: Version of the ONNX operators; by default the exporter's own choice.
        """
        if self.onnx is not None:
            raise ConfigError("the model is an ONNX file already; copy the file")
        self._require_own_network("an ONNX file")
        calibration = self.calibration if self.has_sigma else None
        export_onnx(
            self.network,
            path,
            metadata=self.stored_metadata(),
            digest=self.digest,
            half_width=partial(half_width_by_ramps, calibration) if calibration else None,
            head=self.joint_head,
            opset=opset,
        )

    def _require_own_network(self, form: str) -> None:
        if self.network.info.is_black_box:
            raise ConfigError(
                f"{self.name} is a wrapped network, of which musigma has no layers; {form} cannot "
                "be written. The method save writes its error bars"
            )

    def stored_metadata(self) -> dict[str, Any]:
        """Return what a weights file of this model says: its metadata and its calibration."""
        calibration = self.calibration
        return self.metadata | ({"calibration": calibration.to_dict()} if calibration else {})

    def require_calibration(self, coverage: float | None = None) -> Calibration:
        """Return the calibration at one of its coverages, or say how to get one for it."""
        calibration = self.calibration
        if calibration is None:
            raise ConfigError(
                f"{self.name} is not calibrated; 'musigma calibrate' fits it to held-out images"
            )
        return calibration.at(coverage)

    def require_joint(self) -> JointCalibration:
        """Return how errors are correlated, or say how to get it."""
        stored = self.require_calibration().joint
        if stored is None:
            raise ConfigError(
                f"{self.name} does not say how its errors are correlated; use edsr-baseline "
                "(x2 or x4), or fit it to held-out images by 'musigma calibrate --joint'"
            )
        return JointCalibration.from_dict(stored)


def load(
    model: str | Path,
    *,
    scale: int | None = None,
    value_range: float | None = None,
    network: NetworkLike | None = None,
    trust_network: bool = False,
) -> Model:
    """Load shipped weights by name, or any weights file by its path.

    Args:
        model: Name of shipped weights, such as ``photo`` or ``edsr-baseline``; one of ``fast``,
            ``standard`` and ``large``, which stand for some of them; a weights file of musigma; a
            released file of a known network; or an ONNX file of ``musigma export``. A file that is
            called like a network must be given with its folder, such as ``./edsr-baseline``.
        scale: Zoom factor; needed for a name or a file that exists for several.
        value_range: Range that the layers of a bare state dict work in, where the file does not
            tell it: 255 for most released networks, 1 for networks trained with musigma.
        network: For a file of ``musigma wrap``, the network that its error bars belong to, given as
            it was given to `musigma.wrap`.
        trust_network: Whether that network may be a TorchScript file, which is a program.

    Example:
        >>> load("bicubic", scale=2).scale
        2
    """
    parts = read_model(
        model, scale=scale, value_range=value_range, network=network, trust=trust_network
    )
    return Model(**parts._asdict())


def load_file(path: Path, *, scale: int | None = None, value_range: float | None = None) -> Model:
    """Load a weights file: one of ours, a foreign one recognized by its keys, or an ONNX file."""
    parts = read_model_file(path, scale=scale, value_range=value_range)
    return Model(**parts._asdict())


def save(path: str | Path, model: Model | Network, *, half: bool = False, **metadata: Any) -> None:
    """Write a weights file atomically.

    Args:
        path: Where; the suffix must be ``.safetensors``.
        model: A model, whose metadata and calibration are kept, or a bare network.
        half: Store half-precision values at half the size; loading makes them float32 again.
        metadata: Further entries, such as ``training=``, ``data=``, ``licence=``.
    """
    if isinstance(model, Model):
        model.save(path, half=half, **metadata)
    else:
        write_weights_file(Path(path), model, half=half, **metadata)
