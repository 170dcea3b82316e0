"""``musigma evaluate``: measure a model on a data set."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import parse_size, print_json, results, show_progress
from musigma.cli.shared_options import (
    DegradeOption,
    DeviceOption,
    LowOption,
    MemoryOption,
    NetworkOption,
    NoiseOption,
    ScaleOption,
    TrustOption,
    examples,
)
from musigma.images.listing import printable
from musigma.uncertainty.methods import DEFAULT_COVERAGE

if TYPE_CHECKING:
    from musigma.datasets.catalog import Dataset
    from musigma.evaluation import Record


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples(
        "musigma evaluate edsr-baseline --data Set5 --scale 2",
        "musigma evaluate weights.pth --data ./photos --scale 4 --degrade 'jpeg(75)'",
        "musigma evaluate mine.safetensors --data sharp --low blurred --json",
        "musigma evaluate a.safetensors b.safetensors --baseline ensemble --calibrate-on "
        "DIV2K_crops --data Set5",
    )
    app.command(epilog=epilog)(evaluate)


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Name of a model, or a weights file of musigma or of a known network. An ensemble "
            "takes several.",
        ),
    ],
    data: Annotated[
        str, typer.Option(help="Name of a data set under $MUSIGMA_DATA, or a folder of images.")
    ],
    low: LowOption = None,
    degrade: DegradeOption = None,
    scale: ScaleOption = None,
    noise_std: NoiseOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Measure the uncertainty of a baseline instead of the model's own: constant, "
            "ensemble, mc-dropout, self-ensemble or tta."
        ),
    ] = None,
    calibrate_on: Annotated[
        str | None,
        typer.Option(
            help="Held-out images, a data set or a folder, on which intervals are calibrated "
            "before they are measured."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Coverage of the intervals, such as 0.9; one that the model is calibrated for, if "
            f"it has a calibration. [default: that of the calibration, or {DEFAULT_COVERAGE}]"
        ),
    ] = None,
    tile: Annotated[int | None, typer.Option(help="Largest side of a tile in pixels.")] = None,
    memory: MemoryOption = "2GiB",
    network: NetworkOption = None,
    trust_network: TrustOption = False,
    device: DeviceOption = "auto",
    record: Annotated[
        Path | None,
        typer.Option(
            help="Write the record to this file. With several --degrade it is a folder, which gets "
            "a file for each."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure PSNR and SSIM and, for a model with sigma, how far its error bars can be trusted."""
    from musigma.evaluation import evaluate_model
    from musigma.evaluation.baseline_models import calibrated, make_baseline
    from musigma.evaluation.evaluate import measured_coverage
    from musigma.evaluation.selection import select_inputs
    from musigma.model import load
    from musigma.prediction.device import limit_threads
    from musigma.types import ConfigError

    loaded = [
        load(model, scale=scale, network=network, trust_network=trust_network) for model in models
    ]
    if baseline is None and len(loaded) > 1:
        raise ConfigError(f"got {len(loaded)} models; evaluate one, or give --baseline ensemble")
    model = loaded[0]
    dataset, protocols = select_inputs(
        model.network, data, low=low, degradations=degrade or (), noise_std=noise_std
    )
    held_out = _find_held_out(calibrate_on, model.scale, made=bool(degrade))
    for member in loaded:
        limit_threads(member.to(device).device)
    with show_progress(quiet=json) as progress:
        options: dict[str, Any] = {"memory": parse_size(memory), "progress": progress}
        if baseline is not None:
            model = make_baseline(
                baseline, loaded, protocols=protocols, held_out=held_out, **options
            )
        if held_out is not None:
            share = DEFAULT_COVERAGE if coverage is None else coverage
            model = calibrated(model, held_out, protocols, coverage=share, **options)
        records = [
            evaluate_model(model, dataset, protocol, coverage=coverage, tile=tile, **options)
            for protocol in protocols
        ]
    if json:
        print_json(_as_json(" ".join(models), records))
    elif len(records) == 1:
        _show(records[0], measured_coverage(model.calibration, coverage))
    else:
        _show_all(dict(zip(degrade or (), records, strict=True)))
    if record:  # last: should it fail, the numbers have been shown
        _save(record, records, degrade or [""])


def _find_held_out(name: str | None, scale: int, *, made: bool) -> "Dataset | None":
    """Find the held-out images; the inputs that they bring are used unless inputs are made."""
    from musigma.datasets.catalog import find_dataset

    return find_dataset(name, scale=None if made else scale) if name else None


def _as_json(model: str, records: "Sequence[Record]") -> dict[str, Any]:
    first = records[0]
    source: dict[str, Any] = {"model": model, "data": first.data["name"]}
    if "baseline" in first.model:
        source["baseline"] = first.model["baseline"]
    numbers = [{**record.result, "protocol": record.protocol} for record in records]
    return source | (numbers[0] if len(numbers) == 1 else {"results": numbers})


def _save(path: Path, records: "Sequence[Record]", texts: Sequence[str]) -> None:
    """Write a record to a file, or several into a folder, named by their degradations."""
    if len(records) == 1:
        records[0].save(path)
        return
    for number, (text, record) in enumerate(zip(texts, records, strict=True), start=1):
        name = re.sub(r"[^\w.]+", "-", text).strip("-")[:80]
        record.save(path / f"{number:02}-{name}.json")


def _title(record: "Record") -> str:
    name = " ".join(record.model[key] for key in ("name", "baseline") if key in record.model)
    return printable(f"{name} on {record.data['name']}")


def _show(record: "Record", share: float) -> None:
    from rich.table import Table

    table = Table(title=_title(record))
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in record.result.items():
        table.add_row(name, f"{value:.4f}")
    results.print(table)
    results.print(printable(_in_words(record.protocol)))
    if "width" in record.result:
        results.print(
            f"coverage, width: of intervals meant to hold {100 * share:.4g} % of the true values; "
            "a width or crps of 1 is the full range of brightness"
        )


def _in_words(protocol: "Mapping[str, Any]") -> str:
    """Say how inputs were made and what was compared.

    Example:
        >>> _in_words({"name": "sr-y", "degradation": "bicubic", "scale": 2, "measured_on": "y",
        ...            "shave": 2})
        'protocol sr-y: inputs made by bicubic, scale 2; measured on Y, 2 pixels cut off each side'
    """
    made = "read from files" if protocol["degradation"] == "pairs" else "made by {degradation}"
    channels = {"y": "Y", "all": "all channels", "both": "Y and all channels"}
    text = "protocol {name}: inputs " + made + ", scale {scale}; measured on {channels}"
    cut = ", {shave} pixels cut off each side" if protocol["shave"] else ""
    return (text + cut).format_map({**protocol, "channels": channels[protocol["measured_on"]]})


def _show_all(records: "Mapping[str, Record]") -> None:
    """Show the measures that people compare, a row for each way to make the inputs."""
    from rich.table import Table

    first = next(iter(records.values()))
    measures = ("psnr_y", "psnr", "ssim_y", "ssim", "pll", "coverage", "width")
    shown = [name for name in measures if name in first.result]
    table = Table(title=_title(first))
    table.add_column("inputs made by")
    for name in shown:
        table.add_column(name, justify="right")
    for text, record in records.items():
        table.add_row(printable(text), *(f"{record.result[name]:.4f}" for name in shown))
    results.print(table)
