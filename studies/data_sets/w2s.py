"""W2S, pictures of a real microscope: 120 fields in 3 channels, one frame and the mean of 400.

The 8-bit files are those of the public repository ND-HowardGroup/Instant-Image-Denoising, folder
``Plugins/Model_validation/W2S_data_analysis`` (docs/microscopy.md); nothing of them is shipped. All
commands read the folder SOURCE with the folders of that place in it: ``images_avg1_8bit``,
``images_avg400_8bit``, ``images_avg1_8bit_denoised`` and ``BM3D_denoising_W2S_data_avg1``. File
names end in the number of the field, 001 to 120, and of the channel, 0 to 2.

The commands of ``python -m studies.data_sets.w2s``:

- ``look SOURCE RECORD``: what the noise is like, in fields 1 to 80.
- ``baselines SOURCE RECORD``: PSNR of the noisy pictures and of the results that come with them, on
  all fields and on the last 40, which are held out.
- ``lay-out SOURCE TARGET``: sets of pairs for the trainer, ``W2S_train`` (fields 1 to 70),
  ``W2S_validation`` (71 to 80) and ``W2S_test`` (81 to 120); and the frames of W2S_train alone,
  ``W2S_frames``.
- ``start OUTPUT``: the weights ``photo`` x1 for pictures of one channel, from which training on a
  CPU starts.
- ``remake WEIGHTS SET NEW``: pairs made from frames alone: each frame of a set without its noise,
  and with new noise by the law of the camera.
- ``label WEIGHTS OUTPUT``: the weights with the normalization they expect.
- ``evaluate WEIGHTS SOURCE RECORD``: a network on the held-out fields.

**Contrast.** Each file was stretched by itself so that 0.35 % of its pixels are black or white. The
noise of a frame widens its histogram. So a frame has 0.4 to 0.95 times the contrast of its mean of
400, and an offset. Every score is therefore given in three ways: as the files are; at its own
contrast, for which the restored picture is stretched like the files, without a look at the truth;
and after the line that fits the truth best, as CARE does it.
"""

import argparse
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from musigma.evaluation.record import Record, provenance
from musigma.functional.poisson_gaussian import PoissonGaussian, estimate_poisson_gaussian
from musigma.model import Model, load, save
from musigma.networks import create, num_params, with_sigma
from musigma.uncertainty.metrics.all_metrics import UncertaintyMetrics

Picture = NDArray[np.float64]
"""In 8-bit levels."""

NUM_CHANNELS = 3
TRAINING, VALIDATION, HELD_OUT = range(1, 71), range(71, 81), range(81, 121)
CONTRAST = (0.175, 99.825)
"""Percentiles of a picture that its file shows as black and white."""

COVERAGE = 0.9
COPIES = 2
"""Frames with new noise that are made of each frame."""

FILES = {
    "noisy": "images_avg1_8bit/input_avg1_",
    "average": "images_avg400_8bit/target_avg400_",
    "n2n": "images_avg1_8bit_denoised/denoised_avg1_",
    "vst-bm3d": "BM3D_denoising_W2S_data_avg1/input_avg1_",
}
METHODS = ("noisy", "vst-bm3d", "n2n")
_MIN_PIXELS = 50  # of a level whose mean and variance are looked at
_MAX_LEVEL = 230  # above which frames are clipped
_MAX_MEAN = 150  # of a frame, up to which its variance is not that of clipped values


class Line(NamedTuple):
    """How the levels of a frame follow from those of its average."""

    slope: float
    offset: float

    def of(self, picture: Picture) -> Picture:
        """Return the average on the scale of the frame."""
        return self.slope * picture + self.offset


class Levels(NamedTuple):
    """Mean, variance and number of a frame's pixels for each level of the average."""

    level: Picture
    mean: Picture
    variance: Picture
    number: Picture


def names(fields: Iterable[int]) -> list[str]:
    """Return the names of the pictures of fields, such as ``081_0``."""
    return [f"{field:03}_{channel}" for field in fields for channel in range(NUM_CHANNELS)]


def read(source: Path, kind: str, name: str) -> Picture:
    """Read a picture; files may be TIFF, as they come, or PNG."""
    path = source / f"{FILES[kind]}{name}.tif"
    with Image.open(path if path.is_file() else path.with_suffix(".png")) as image:
        return np.asarray(image.convert("L"), dtype=np.float64)


def levels_of(noisy: Picture, average: Picture) -> Levels:
    """Collect the pixels of a frame by the level of its average."""
    index, values = average.astype(int).ravel(), noisy.ravel()
    count = np.bincount(index, minlength=256).astype(float)
    kept = (count >= _MIN_PIXELS) & (np.arange(256) > 0) & (np.arange(256) < _MAX_LEVEL)
    mean = np.bincount(index, values, 256)[kept] / count[kept]
    square = np.bincount(index, values**2, 256)[kept] / count[kept]
    return Levels(np.arange(256.0)[kept], mean, (square - mean**2).clip(1e-6), count[kept])


def line_of(levels: Levels) -> Line:
    """Fit the line from the average to the frame; clipped levels have no part in it."""
    weights = np.sqrt(levels.number / levels.variance)
    slope, offset = np.polyfit(levels.level, levels.mean, 1, w=weights)
    return Line(float(slope), float(offset))


def aligned(noisy: Picture, average: Picture) -> Picture:
    """Return the average on the scale of its frame: what a perfect denoiser would return."""
    return line_of(levels_of(noisy, average)).of(average)


def psnr(picture: Picture, truth: Picture) -> float:
    """PSNR in dB with a peak of 255, of values clipped to 8 bits but not rounded."""
    return float(10 * np.log10(255**2 / np.mean((picture.clip(0, 255) - truth) ** 2)))


def stretch_of(picture: Picture) -> Line:
    """Return the line that stretches a picture as the files are."""
    low, high = np.percentile(picture, CONTRAST)
    slope = 255 / max(float(high - low), 1e-6)
    return Line(slope, -slope * float(low))


def scores(picture: Picture, average: Picture) -> dict[str, float]:
    """Measure a picture against the average in the three ways that the module explains."""
    slope, offset = np.polyfit(picture.ravel(), average.ravel(), 1)
    return {
        "psnr_as_stored": psnr(picture, average),
        "psnr_own_contrast": psnr(stretch_of(picture).of(picture), average),
        "psnr_best_line": psnr(slope * picture + offset, average),
    }


def means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each score."""
    rows = list(rows)
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def baselines(source: Path) -> Record:
    """Measure the noisy pictures and the results of others."""
    every, held_out = names([*TRAINING, *VALIDATION, *HELD_OUT]), set(names(HELD_OUT))
    images: dict[str, dict[str, float]] = {}
    for name in every:
        average = read(source, "average", name)
        images[name] = {
            f"{method}_{key}": value
            for method in METHODS
            for key, value in scores(read(source, method, name), average).items()
        }
    result = {
        "held_out": means(row for name, row in images.items() if name in held_out),
        "all_fields": means(images.values()),
    }
    return _record(
        "benchmark", {"name": "others"}, source, every, {"num_images": len(every)}, result, images
    )


def look(source: Path) -> Record:
    """Measure what the noise of the fields that are not held out is like."""
    chosen = names([*TRAINING, *VALIDATION])
    images = {
        name: noise_of(read(source, "noisy", name), read(source, "average", name))
        for name in chosen
    }
    columns = {key: np.array([row[key] for row in images.values()]) for key in images[chosen[0]]}
    result: dict[str, Any] = {
        key: {
            "mean": float(column.mean()),
            "std": float(column.std()),
            "low": float(column.min()),
            "high": float(column.max()),
        }
        for key, column in columns.items()
    }
    return _record("benchmark", {"name": "noise"}, source, chosen, {}, result, images)


def noise_of(noisy: Picture, average: Picture) -> dict[str, float]:
    """Compare a frame with its average: scale, whiteness, clipping, and the law of the variance."""
    levels = levels_of(noisy, average)
    line = line_of(levels)
    misfit = levels.mean - line.of(levels.level)
    low = levels.mean < _MAX_MEAN
    weights = np.sqrt(levels.number[low]) / levels.variance[low]
    gain, intercept = np.polyfit(levels.mean[low], levels.variance[low], 1, w=weights)
    std = np.sqrt(np.interp(average, levels.level, levels.variance))
    unit = np.where((average > 0) & (average < _MAX_LEVEL), (noisy - line.of(average)) / std, 0)
    power = np.mean(unit**2)
    middle = noisy[abs(average - np.percentile(average, 60)) <= 1]
    third = float(((middle - middle.mean()) ** 3).mean()) / float(middle.var()) ** 1.5
    estimate = estimate_poisson_gaussian(torch.from_numpy(noisy / 255)[None, None])
    typical = float(np.percentile(line.of(average), 75))
    true = gain * typical + intercept
    found = float(estimate.variance(torch.tensor(typical / 255))) * 255**2
    return {
        "slope": line.slope,
        "offset": line.offset,
        "misfit_of_line": float(np.sqrt(np.average(misfit**2, weights=levels.number))),
        "correlation_right": float(np.mean(unit[:, :-1] * unit[:, 1:]) / power),
        "correlation_down": float(np.mean(unit[:-1] * unit[1:]) / power),
        "correlation_diagonal": float(np.mean(unit[:-1, :-1] * unit[1:, 1:]) / power),
        "black_share": float((noisy == 0).mean()),
        "white_share": float((noisy == 255).mean()),
        "gain": float(gain),
        # Times the root of light over gain: 1 for photons, 1.5 where electrons are multiplied.
        "skewness": third * float(np.sqrt((middle.mean() + intercept / gain) / gain)),
        "gain_estimate_over_gain": estimate.gain / float(gain),
        "variance_estimate_over_variance": found / float(true),
    }


def lay_out(source: Path, target: Path) -> None:
    """Write three sets of pairs, and the frames for training without averages.

    The targets are averages on the scale of their frames.
    """
    sets = {"W2S_train": TRAINING, "W2S_validation": VALIDATION, "W2S_test": HELD_OUT}
    for set_name, fields in sets.items():
        for name in names(fields):
            noisy, average = read(source, "noisy", name), read(source, "average", name)
            _write(target / set_name / "LR" / f"{name}.png", noisy)
            _write(target / set_name / "HR" / f"{name}.png", aligned(noisy, average))
    for name in names(TRAINING):
        _write(target / "W2S_frames" / f"{name}.png", read(source, "noisy", name))


def restored_values(model: Model, noisy: Picture) -> tuple[Picture, torch.Tensor | None]:
    """Return the restored frame in levels, and sigma in units of 255 levels."""
    image = torch.from_numpy(noisy / 255).float()[None, None]
    with torch.inference_mode():
        mean, sigma = model.predict(image.to(model.device))
    return mean[0, 0].double().cpu().numpy() * 255, None if sigma is None else sigma.cpu()


def start(output: Path) -> None:
    """Write the weights ``photo`` x1 as a network of one channel.

    Its mean for a gray picture is that of ``photo`` for three equal channels, averaged.
    """
    colors = load("photo", scale=1)
    architecture = str(colors.metadata["architecture"])
    network = with_sigma(create(architecture, scale=1, channels=1), width=32)
    state = network.state_dict()
    for name, tensor in colors.network.state_dict().items():
        if name == "base.m_head.weight":
            state[name] = tensor.sum(1, keepdim=True)
        elif name.startswith(("base.m_tail.", "branch.upsampler.")):
            state[name] = tensor.mean(0, keepdim=True)
        elif not name.endswith("build_spec"):
            state[name] = tensor
    network.load_state_dict(state)
    save(output, network)


def remake(weights: Path, data: Path, folder: Path) -> None:
    """Write frames without their noise as targets, and these with new noise as inputs."""
    model = _load(weights)
    for number, path in enumerate(sorted((data / "LR").glob("*.png"))):
        with Image.open(path) as image:
            noisy = np.asarray(image.convert("L"), dtype=np.float64)
        clean = restored_values(model, noisy)[0]
        noise = estimate_poisson_gaussian(torch.from_numpy(noisy / 255)[None, None])
        for copy in range(COPIES):
            random = np.random.default_rng([number, copy])
            _write(folder / "HR" / f"{path.stem}_{copy}.png", clean)
            _write(folder / "LR" / f"{path.stem}_{copy}.png", new_frame(clean, noise, random))


def new_frame(clean: Picture, noise: PoissonGaussian, random: np.random.Generator) -> Picture:
    """Draw what a camera with electron multiplication makes of a scene.

    Photons are counted by Poisson's law, and each of them becomes an exponential number of
    electrons. That doubles the variance: the gain of the variance is twice that of a photon.
    """
    photons = random.poisson(2 * (clean - noise.black).clip(0) / noise.gain)
    electrons = random.gamma(np.maximum(photons, 1e-9)) * noise.gain / 2
    black = np.minimum(clean, noise.black)
    return np.asarray(black + electrons + random.normal(0, noise.std, clean.shape))


def label(weights: Path, output: Path) -> None:
    """Store with weights, in half precision, that they expect the contrast of these files."""
    save(output, load(weights), half=True, value_percentiles=CONTRAST)


def evaluate(weights: Path, source: Path) -> Record:
    """Measure a network on the held-out fields: PSNR in three ways, and its intervals."""
    model = _load(weights)
    chosen = names(HELD_OUT)
    metrics = UncertaintyMetrics(model.calibration, coverage=COVERAGE) if model.has_sigma else None
    images: dict[str, dict[str, float]] = {}
    for name in chosen:
        noisy, average = read(source, "noisy", name), read(source, "average", name)
        mean, sigma = restored_values(model, noisy)
        truth = aligned(noisy, average)
        images[name] = scores(mean, average) | {"psnr_scale_of_frame": psnr(mean, truth)}
        if metrics is not None and sigma is not None:
            shown, target = (torch.from_numpy(p / 255).float()[None, None] for p in (mean, truth))
            metrics.update(shown, target, sigma)
            images[name] |= _shares_inside(model, mean, sigma, average, truth)
    result = means(images.values())
    if metrics is not None:
        result |= metrics.compute()
    description = {
        "name": model.name,
        "scale": model.scale,
        "params": num_params(model.network),
        "digest": model.digest,
        "training": model.metadata.get("training", {}),
        "calibration": None if model.calibration is None else model.calibration.to_dict(),
    }
    protocol = {"coverage": COVERAGE, "contrast": list(CONTRAST)}
    seed = description["training"].get("seed")
    return _record("evaluation", description, source, chosen, protocol, result, images, seed)


def _shares_inside(
    model: Model, mean: Picture, sigma: torch.Tensor, average: Picture, truth: Picture
) -> dict[str, float]:
    """Return how much of the truth the intervals hold, on both scales; nothing if uncalibrated."""
    if model.calibration is None:
        return {}
    half = model.calibration.at(COVERAGE).half_width(sigma)[0, 0].double().numpy() * 255
    stretch = stretch_of(mean)
    low, high = (stretch.of(mean + sign * half).clip(0, 255) for sign in (-1, 1))
    return {
        "coverage_scale_of_frame": float((abs(mean - truth) <= half).mean()),
        "coverage_own_contrast": float(((low <= average) & (average <= high)).mean()),
    }


def _load(weights: Path) -> Model:
    model = load(weights)
    return model.to("cuda") if torch.cuda.is_available() else model


def _write(path: Path, picture: Picture) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.clip(0, 255).round().astype(np.uint8)).save(path, compress_level=1)


def _record(
    kind: str,
    model: dict[str, Any],
    source: Path,
    chosen: list[str],
    protocol: dict[str, Any],
    result: dict[str, Any],
    images: dict[str, dict[str, float]],
    seed: int | None = None,
) -> Record:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Record(
        kind=kind,
        model={"scale": 1, "params": 0, "digest": ""} | model,
        protocol={"name": "w2s"} | protocol,
        data={"name": "W2S", "num_images": len(chosen), "hash": _hash(source, chosen)},
        result=result,
        images=images,
        provenance=provenance(device),
        seed=seed,
    )


def _hash(source: Path, chosen: list[str]) -> str:
    """Return the SHA-256 of the values of frames and averages, whatever files hold them."""
    total = hashlib.sha256()
    for picture in _pictures(source, chosen):
        total.update(picture.astype(np.uint8).tobytes())
    return total.hexdigest()


def _pictures(source: Path, chosen: list[str]) -> Iterator[Picture]:
    for name in chosen:
        for kind in ("noisy", "average"):
            yield read(source, kind, name)


def main(arguments: list[str] | None = None) -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in {
        "look": ("source", "record"),
        "baselines": ("source", "record"),
        "lay-out": ("source", "target"),
        "start": ("output",),
        "remake": ("weights", "data", "folder"),
        "label": ("weights", "output"),
        "evaluate": ("weights", "source", "record"),
    }.items():
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word, type=Path)
    given = vars(parser.parse_args(arguments))
    name, output = given.pop("command"), given.pop("record", None)
    functions: dict[str, Any] = {
        "look": look,
        "baselines": baselines,
        "lay-out": lay_out,
        "start": start,
        "remake": remake,
        "label": label,
        "evaluate": evaluate,
    }
    record = functions[name](**given)
    if output is not None:
        record.save(output)
        print({key: value for key, value in record.result.items() if "low" not in str(value)})


if __name__ == "__main__":
    main()
