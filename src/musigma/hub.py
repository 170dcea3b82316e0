"""Folders in the form of the Hugging Face hub: ``config.json``, ``model.safetensors``, a card.

`musigma.Model.save_pretrained` and `musigma.Model.from_pretrained` use this module. The weights
file describes itself; ``config.json`` repeats its description for other programs.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol

from musigma.atomic import write_atomically
from musigma.networks import Network
from musigma.networks.model_card import num_params, purpose_of
from musigma.networks.weights_file import describe
from musigma.types import ConfigError, WeightsError

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
MAX_CONFIG_BYTES = 1_000_000
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_METRICS = {
    "psnr_y": ("psnr", "PSNR on Y (dB)"),
    "psnr": ("psnr", "PSNR (dB)"),
    "ssim_y": ("ssim", "SSIM on Y"),
    "ssim": ("ssim", "SSIM"),
    "coverage": ("coverage", "share of the values inside their interval"),
    "width": ("interval-width", "mean width of the interval"),
    "pll_calibrated": ("pll", "PLL (nats), calibrated"),
    "crps_calibrated": ("crps", "CRPS, calibrated"),
    "ause": ("ause", "AUSE"),
}
"""Results that a card shows: how the hub calls them, and how we do."""


class Measurement(Protocol):
    """What a card needs of a measurement; `musigma.evaluation.Record` has it."""

    @property
    def model(self) -> Mapping[str, Any]:
        """Name, scale and digest of the weights."""

    @property
    def protocol(self) -> Mapping[str, Any]:
        """How it was measured."""

    @property
    def data(self) -> Mapping[str, Any]:
        """Name of the data."""

    @property
    def result(self) -> Mapping[str, Any]:
        """The numbers."""


def find_folder(source: str | Path, *, revision: str | None = None) -> Path:
    """Return the folder of a model, which is fetched where the source names a repository.

    Args:
        source: A folder, or a repository of the hub as ``OWNER/NAME``.
        revision: Branch, tag or commit of the repository; a folder has none.
    """
    folder, name = Path(source), str(source)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(
                f"{name} is a folder, so it has no revision {revision!r}; leave it out"
            )
        return folder
    if isinstance(source, Path) or not _REPOSITORY.fullmatch(name):
        raise WeightsError(
            f"there is no folder {name}; give a folder that `save_pretrained` wrote, or a "
            "repository of the hub as OWNER/NAME; `musigma.load` loads shipped weights and files"
        )
    return _fetch(name, revision)


def _fetch(repository: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConfigError(
            f"there is no folder {repository}; to fetch it from the hub, install the extra hub: "
            "pip install 'musigma[hub]'"
        ) from error
    try:
        fetched = snapshot_download(repository, revision=revision, allow_patterns=[CONFIG, WEIGHTS])
    except Exception as error:
        # The package raises errors of its own, of its HTTP library and of the system.
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{repository} could not be fetched from the hub: {reason}") from error
    return Path(fetched)


def read_config(folder: Path, network: Network) -> dict[str, Any]:
    """Read ``config.json`` and refuse one that describes another network than the weights do.

    Args:
        folder: The folder; a missing file counts as an empty one.
        network: What the weights file holds.
    """
    path = folder / CONFIG
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise WeightsError(f"{CONFIG} is larger than {MAX_CONFIG_BYTES} bytes, so it is not ours")
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{CONFIG} could not be read: {error}") from error
    if not isinstance(config, dict):
        raise WeightsError(f"{CONFIG} must hold an object, not {type(config).__name__}")
    for key, value in _plain(describe(network)).items():
        if key in config and config[key] != value:
            raise WeightsError(
                f"{CONFIG} says {key} = {json.dumps(config[key])[:80]}, but {WEIGHTS} says "
                f"{json.dumps(value)[:80]}; one of the two files was changed"
            )
    return config


def name_in(config: Mapping[str, Any], default: str) -> str:
    """Return the name that a config gives its weights, or the default."""
    name = config.get("name")
    return name if isinstance(name, str) and name else default


def write_folder(
    folder: Path,
    network: Network,
    *,
    name: str,
    digest: str,
    metadata: Mapping[str, Any],
    promise: str | None,
    results: Sequence[Measurement] = (),
) -> None:
    """Write ``config.json`` and the model card beside a weights file.

    Args:
        folder: Where.
        network: The network of the weights file.
        name: What the weights are called.
        digest: Of the weights in the file.
        metadata: What the weights file says about training, data and calibration.
        promise: What the intervals promise; `None` without a calibration.
        results: Measurements for the card.
    """
    config = {"library_name": "musigma", "name": name, **metadata, **describe(network)}
    card = _card(network, name, digest, metadata, promise, results)
    write_atomically(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    write_atomically(folder / CARD, card.encode())


def check_results(results: Sequence[Measurement], *, name: str, digest: str) -> None:
    """Refuse measurements that were made with other weights than those of this digest."""
    for measurement in results:
        measured = measurement.model.get("digest")
        if measured != digest:
            raise ConfigError(
                f"a result on {measurement.data.get('name')} was measured with other weights than "
                f"{name} has (digest {str(measured)[:12]}, not {digest[:12]}); measure these "
                "weights with 'musigma evaluate --record'"
            )


def _card(
    network: Network,
    name: str,
    digest: str,
    metadata: Mapping[str, Any],
    promise: str | None,
    results: Sequence[Measurement],
) -> str:
    title, licence = f"{name} x{network.scale}", metadata.get("licence")
    purpose = _one_line(purpose_of({**metadata, **describe(network)}))
    errors = ", and predicts the error of every value" if network.has_sigma else ""
    lines = [
        "---",
        *_yaml(_front_matter(network, title, has_licence=bool(licence), results=results)),
        "---",
        f"# {_one_line(title)}",
        "",
        f"Weights of musigma: {purpose}. The network is `{network.build_spec.name}` with "
        f"{num_params(network):,} parameters{errors}.",
        "",
        *_EXAMPLE,
        "",
        "## Intervals",
        "",
        *_interval_lines(promise),
        "",
        *_results_table(results),
        "## License",
        "",
        _one_line(licence or "The weights file does not state a license."),
        "",
        f"SHA-256 of the weights: `{digest}`",
        "",
    ]
    return "\n".join(lines)


def _one_line(text: object) -> str:
    """Return a text of a weights file as one line that holds no HTML; a card may be published."""
    return escape(" ".join(str(text).split()), quote=False)


_EXAMPLE = (
    "```python",
    "import musigma",
    "",
    'model = musigma.Model.from_pretrained("PATH_OR_REPOSITORY")',
    'image, _ = musigma.read_image("photo.png")',
    "mean, sigma = model.predict(image)",
    "```",
)


def _front_matter(
    network: Network, title: str, *, has_licence: bool, results: Sequence[Measurement]
) -> dict[str, Any]:
    """Return the metadata that the hub reads from the head of a card."""
    front: dict[str, Any] = {
        "library_name": "musigma",
        "pipeline_tag": "image-to-image",
        "tags": [network.info.task, "uncertainty", "calibration"],
    }
    if has_licence:
        front |= {"license": "other", "license_name": "see-model-card"}
    if results:
        entries = [_model_index_entry(measurement) for measurement in results]
        front["model-index"] = [{"name": title, "results": entries}]
    return front


def _interval_lines(promise: str | None) -> list[str]:
    if promise is None:
        return ["The weights are not calibrated.", ""]
    return [f"{promise[:1].upper()}{promise[1:]}.", "For other inputs they promise nothing."]


def _model_index_entry(measurement: Measurement) -> dict[str, Any]:
    protocol, data = measurement.protocol, str(measurement.data["name"])
    return {
        "task": {"type": "image-to-image", "name": _conditions(protocol)},
        "dataset": {"name": data, "type": re.sub(r"[^\w.-]+", "-", data).lower()},
        "metrics": [
            {"type": _METRICS[key][0], "name": _METRICS[key][1], "value": value}
            for key, value in _shown(measurement)
        ],
    }


def _shown(measurement: Measurement) -> Iterator[tuple[str, float]]:
    """Yield the results that a card shows; an infinite PSNR is no number of JSON or YAML."""
    for key in _METRICS:
        value = measurement.result.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            yield key, float(value)


def _conditions(protocol: Mapping[str, Any]) -> str:
    return f"x{protocol.get('scale', 1)}, inputs by {protocol.get('degradation', 'pairs')}"


def _results_table(results: Sequence[Measurement]) -> list[str]:
    if not results:
        return []
    rows = [
        (
            measurement.data["name"],
            _conditions(measurement.protocol),
            _METRICS[key][1],
            f"{value:.4g}",
        )
        for measurement in results
        for key, value in _shown(measurement)
    ]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    heading = ["| data | conditions | measure | value |", "| --- | --- | --- | ---: |"]
    return ["## Results", "", *heading, *lines, ""]


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON: lists for tuples."""
    return json.loads(json.dumps(value))


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping as YAML; texts are written as in JSON, which is YAML, too."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(inner, indent + "  ")
        elif isinstance(inner, list):
            yield f"{indent}{key}:"
            yield from _yaml_list(inner, indent)
        else:
            yield f"{indent}{key}: {json.dumps(inner)}"


def _yaml_list(values: Sequence[Any], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping):
            first, *rest = _yaml(value, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}- {json.dumps(value)}"
