"""``musigma bench``: ratios against the plain way, in one run."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import print_json, progress_bar, results, screen

if TYPE_CHECKING:
    import torch

    from musigma.datasets.catalog import Dataset
    from musigma.evaluation.record import Record
    from musigma.model import Model
    from musigma.prediction.engines import Engine
    from musigma.training.recipe import Recipe


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Measure speed as ratios against the plain way, in one run.")
    group.command("train")(bench_train)
    group.command("infer")(bench_infer)
    group.command("forward")(bench_forward)
    app.add_typer(group, name="bench")


def bench_train(
    recipe: Annotated[str, typer.Option(help="Whose network, batch and patch to time.")] = "paper",
    steps: Annotated[int, typer.Option(help="Steps to time after the warm-up.")] = 200,
    large_batch: Annotated[int, typer.Option(help="Second batch size.")] = 256,
    workers: Annotated[int, typer.Option(help="Processes of the DataLoader.")] = 16,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    record: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Time the training step against a plain PyTorch loop and one fed by a DataLoader."""
    from musigma.datasets.patch_bank import build_bank, load_images
    from musigma.prediction.device import select_device_and_threads
    from musigma.training.recipe import load_recipe
    from musigma.training.setup import training_data
    from studies.bench.training import bench_training

    chosen, where = load_recipe(recipe), select_device_and_threads(device)
    dataset = training_data(chosen)
    with progress_bar(quiet=json) as bar:
        task = bar.add_task("loading images", total=len(dataset.items))
        images = load_images(
            [item.target for item in dataset.items],
            num_channels=chosen.channels,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    bank = build_bank(images, scale=chosen.scale, patch=chosen.patch, device=where)
    result = bench_training(
        chosen,
        bank,
        images,
        device=where,
        num_steps=steps,
        large_batch=large_batch,
        num_workers=workers,
        report=screen.print,
    )
    if record:
        _record(chosen, dataset, where, result).save(record)
    if json:
        print_json(result)
    else:
        for name, value in result.items():
            if name != "timings":
                screen.print(f"{name.replace('_', ' ')}: {value:.2f}")


def bench_infer(
    model: Annotated[str, typer.Option(help="A name, or a weights file.")] = "edsr-baseline",
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = 2,
    height: Annotated[int | None, typer.Option(help="Of the input; 180, on a GPU 360.")] = None,
    width: Annotated[int | None, typer.Option(help="Of the input; 320, on a GPU 640.")] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each engine.")] = 9,
    data: Annotated[str, typer.Option(help="Set for the PSNR of each engine.")] = "Set5",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    record: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Time every engine of this machine against plain PyTorch in float32, and measure its PSNR."""
    import torch

    from musigma.evaluation.record import Record, provenance
    from musigma.model import load
    from musigma.networks import num_params
    from musigma.prediction.device import select_device_and_threads
    from studies.bench.inference import all_engines, bench_inference

    loaded, where = load(model, scale=scale), select_device_and_threads(device)
    network = loaded.network.to(where)
    default = (360, 640) if where.type == "cuda" else (180, 320)
    height, width = height or default[0], width or default[1]
    engines = all_engines(network, report=screen.print)
    result = bench_inference(
        network, engines, height=height, width=width, num_rounds=rounds, report=screen.print
    )
    facts = _add_psnr(loaded, engines, data, result["timings"])
    if record:
        Record(
            kind="benchmark",
            model={
                "name": loaded.name,
                "scale": loaded.scale,
                "params": num_params(network),
                "digest": loaded.digest,
            },
            protocol={
                "name": "inference",
                "height": height,
                "width": width,
                "rounds": rounds,
                "threads": torch.get_num_threads(),
                "versions": _versions("onnxruntime", "openvino"),
            },
            data=facts,
            result=result,
            provenance=provenance(where),
        ).save(record)
    if json:
        print_json(result)
    else:
        _show_engines(result)


NOISE_STD = 25.0
"""Noise level, in 8-bit levels, at which denoisers are measured."""


def _add_psnr(
    model: "Model", engines: "dict[str, Engine]", data: str, timings: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Measure the mean of every engine, where the data is there; describe the data."""
    from musigma.datasets.catalog import data_hash, find_dataset
    from musigma.evaluation import evaluate, protocol_for
    from musigma.types import DataError

    try:
        dataset = find_dataset(data)
    except DataError as error:
        screen.print(f"no PSNR: {error}")
        return {"name": "waves made by code", "hash": "generated"}
    protocol = protocol_for(model.network, noise_std=None if model.scale > 1 else NOISE_STD)
    key = "psnr_y" if model.scale > 1 else "psnr"
    for label, engine in engines.items():
        summary = evaluate(model.network, dataset, protocol, engine=engine).summary
        timings[label][key] = round(summary[key], 4)
    return {"name": dataset.name, "num_images": len(dataset.items), "hash": data_hash(dataset)}


def _versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _show_engines(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    columns = {
        "median_ms": ".1f",
        "mean_only_ms": ".1f",
        "times_faster": ".2f",
        "rms_difference": ".1e",
        "psnr_y": ".3f",
        "psnr": ".3f",
    }
    table.add_column("engine")
    for heading in columns:
        table.add_column(heading.replace("_", " "), justify="right")
    for label, values in result["timings"].items():
        cells = [format(values[key], how) for key, how in columns.items() if key in values]
        table.add_row(label, *cells)
    results.print(table)
    results.print(f"auto: {result['auto']}, {result['auto_times_faster']} times as fast as torch")


def bench_forward(
    names: Annotated[list[str] | None, typer.Argument(help="Networks; all if none.")] = None,
    scale: Annotated[int, typer.Option(help="Zoom factor.")] = 2,
    height: Annotated[int, typer.Option(help="Of the input.")] = 180,
    width: Annotated[int, typer.Option(help="Of the input.")] = 320,
    record: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Measure time and peak memory of one forward pass of each network on the CPU."""
    import torch

    from musigma.evaluation.record import Record, provenance
    from musigma.networks import entries
    from studies.bench.inference import bench_forward as measure

    chosen = names or [entry.name for entry in entries() if scale in entry.scales]
    result = measure(chosen, scale=scale, height=height, width=width, report=screen.print)
    if record:
        Record(
            kind="benchmark",
            model={"name": "all", "scale": scale, "params": 0, "digest": ""},
            protocol={"name": "forward", "height": height, "width": width, "precision": "float32"},
            data={"name": "uniform noise, seed 0", "hash": "generated"},
            result=result,
            provenance=provenance(torch.device("cpu")),
        ).save(record)
    if json:
        print_json(result)


def _record(
    chosen: "Recipe", dataset: "Dataset", where: "torch.device", result: dict[str, Any]
) -> "Record":
    from musigma.datasets.catalog import data_hash
    from musigma.evaluation.record import Record, provenance
    from musigma.networks import card

    facts = card(chosen.network, scale=chosen.scale)
    return Record(
        kind="benchmark",
        model={"name": facts.name, "scale": facts.scale, "params": facts.params, "digest": ""},
        protocol={"name": "train-step", "batch": chosen.batch, "patch": chosen.patch},
        data={"name": dataset.name, "num_images": len(dataset.items), "hash": data_hash(dataset)},
        result=result,
        provenance=provenance(where),
        seed=chosen.seed,
    )
