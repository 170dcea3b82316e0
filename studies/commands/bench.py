"""``python -m studies bench``: times and ratios, measured in one run."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import print_json, progress_bar, results, screen
from studies.commands.campaign import CAMPAIGN

if TYPE_CHECKING:
    import torch

    from musigma.datasets.catalog import Dataset
    from musigma.evaluation.record import Record
    from musigma.model import Model
    from musigma.prediction.engines import Engine
    from musigma.training.recipe import Recipe

DEFAULT_MODEL = "edsr-baseline"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Measure speed, as ratios to plain PyTorch in the same run.")
    group.command("train")(bench_train)
    group.command("zoo")(bench_zoo)
    group.command("infer")(bench_infer)
    group.command("forward")(bench_forward)
    app.add_typer(group, name="bench")


def bench_train(
    recipe: Annotated[
        str, typer.Option(help="Recipe with the network, batch and patch to time.")
    ] = "paper",
    steps: Annotated[int, typer.Option(help="Steps to time after the warm-up.")] = 200,
    large_batch: Annotated[int, typer.Option(help="A second batch size.")] = 256,
    workers: Annotated[int, typer.Option(help="Number of processes of the DataLoader.")] = 16,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    record: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Time the training step, a plain PyTorch loop, and a loop fed by a DataLoader."""
    from musigma.datasets.patch_bank import build_bank, load_images
    from musigma.prediction.device import select_device_and_threads
    from musigma.training.setup import training_data
    from studies.bench.training import bench_training
    from studies.training_runs.study_recipes import load_study_recipe

    chosen, selected = load_study_recipe(recipe), select_device_and_threads(device)
    dataset = training_data(chosen)
    with progress_bar(quiet=json) as bar:
        task = bar.add_task("loading images", total=len(dataset.items))
        images = load_images(
            [item.target for item in dataset.items],
            num_channels=chosen.channels,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    bank = build_bank(images, degradation=chosen.degradation, patch=chosen.patch, device=selected)
    result = bench_training(
        chosen,
        bank,
        images,
        device=selected,
        num_steps=steps,
        large_batch=large_batch,
        num_workers=workers,
        report=screen.print,
    )
    if record:
        _record(chosen, dataset, selected, result).save(record)
    if json:
        print_json(result)
    else:
        for name, value in result.items():
            if name != "timings":
                screen.print(f"{name.replace('_', ' ')}: {value:.2f}")


def bench_zoo(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Measure only this entry of the campaign; can be given several times."),
    ] = None,
    file: Annotated[Path, typer.Option(help="The campaign file.")] = CAMPAIGN,
    steps: Annotated[int, typer.Option(help="Steps to time after the warm-up.")] = 50,
    l1_only: Annotated[
        bool, typer.Option("--l1-only", help="Leave out the full objective with its branch.")
    ] = False,
    compile_step: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile or not, whatever the entries say."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    record: Annotated[
        Path | None, typer.Option(help="Write the record here; networks it holds are left out.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Time the training step of every network of the study beside a plain PyTorch loop."""
    from dataclasses import replace

    from musigma.evaluation.record import load_record
    from musigma.prediction.device import select_device_and_threads
    from studies.bench.training import bench_networks
    from studies.training_runs.zoo import zoo_plans, zoo_recipes

    selected = select_device_and_threads(device)
    result = load_record(record).result if record and record.is_file() else {}
    chosen = [plan for plan in zoo_plans(file, only=only) if plan.name not in result]
    networks = {
        plan.name: {
            objective: recipe if compile_step is None else replace(recipe, compile=compile_step)
            for objective, recipe in zoo_recipes(plan).items()
            if not (l1_only and recipe.sigma)
        }
        for plan in chosen
    }
    for name, measured in bench_networks(
        networks, device=selected, num_steps=steps, report=partial(screen.print, markup=False)
    ):
        result[name] = measured
        if record:  # after each network, since the machine may be taken away
            _zoo_record(result, selected).save(record)
    if json:
        print_json(result)


def bench_infer(
    model: Annotated[str, typer.Option(help="Model name or weights file.")] = DEFAULT_MODEL,
    scale: Annotated[int | None, typer.Option(help="Zoom factor; 2 for the default model.")] = None,
    noise_std: Annotated[
        float, typer.Option(help="Noise level for the PSNR of a denoiser, in 8-bit levels.")
    ] = 25.0,
    height: Annotated[
        int | None, typer.Option(help="Height of the input; 180, on a GPU 360.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Width of the input; 320, on a GPU 640.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="How often each engine is timed.")] = 9,
    data: Annotated[str, typer.Option(help="Data set for the PSNR of each engine.")] = "Set5",
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

    if scale is None and model == DEFAULT_MODEL:
        scale = 2
    loaded, selected = load(model, scale=scale), select_device_and_threads(device)
    # Everything that can fail comes before the timing, which takes minutes.
    psnr_of, described = _psnr_on(loaded, data, noise_std)
    network = loaded.network.to(selected)
    default = (360, 640) if selected.type == "cuda" else (180, 320)
    height, width = height or default[0], width or default[1]
    engines = all_engines(network, report=screen.print)
    result = bench_inference(
        network, engines, height=height, width=width, num_rounds=rounds, report=screen.print
    )
    for label, engine in engines.items():
        result["timings"][label] |= psnr_of(engine)
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
            data=described,
            result=result,
            provenance=provenance(selected),
        ).save(record)
    if json:
        print_json(result)
    else:
        _show_engines(result)


def _psnr_on(
    model: "Model", data: str, noise_std: float
) -> tuple["Callable[[Engine], dict[str, float]]", dict[str, Any]]:
    """Return what measures the PSNR of an engine, and the description of the data.

    Without the data nothing is measured, and the benchmark says so.
    """
    from musigma.datasets.catalog import data_hash, find_dataset
    from musigma.evaluation import evaluate, protocol_for
    from musigma.types import DataError

    try:
        dataset = find_dataset(data)
    except DataError as error:
        screen.print(f"no PSNR: {error}")
        return lambda _: {}, {"name": "waves made by code", "hash": "generated"}
    network = model.network
    protocol = protocol_for(network, noise_std=noise_std if model.scale == 1 else None)
    name = "psnr_y" if model.scale > 1 else "psnr"

    def measure(engine: "Engine") -> dict[str, float]:
        summary = evaluate(network, dataset, protocol, engine=engine).summary
        return {name: round(summary[name], 4)}

    num_images = len(dataset.items)
    return measure, {"name": dataset.name, "num_images": num_images, "hash": data_hash(dataset)}


def _versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _show_engines(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    columns = {
        "median_ms": ".1f",
        "mean_only_ms": ".1f",
        "times_faster": ".2f",
        "rms_difference": ".1e",
        "psnr": ".3f",
    }
    table.add_column("engine")
    for heading in columns:
        table.add_column(heading.replace("_", " "), justify="right")
    for label, values in result["timings"].items():
        shown = values | {"psnr": values.get("psnr_y", values.get("psnr"))}
        cells = [format(shown[key], how) for key, how in columns.items() if shown[key] is not None]
        table.add_row(label, *cells)
    results.print(table)
    results.print(f"auto: {result['auto']}, {result['auto_times_faster']} times as fast as torch")


def bench_forward(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of networks; by default all.")
    ] = None,
    scale: Annotated[int, typer.Option(help="Zoom factor.")] = 2,
    height: Annotated[int, typer.Option(help="Height of the input.")] = 180,
    width: Annotated[int, typer.Option(help="Width of the input.")] = 320,
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


def _zoo_record(result: dict[str, Any], device: "torch.device") -> "Record":
    from musigma.evaluation.record import Record, provenance

    return Record(
        kind="benchmark",
        model={"name": "all", "scale": 0, "params": 0, "digest": ""},
        protocol={"name": "train-step-zoo"},
        data={"name": "striped discs drawn by code", "hash": "generated"},
        result=result,
        provenance=provenance(device),
    )


def _record(
    chosen: "Recipe", dataset: "Dataset", device: "torch.device", result: dict[str, Any]
) -> "Record":
    from musigma.datasets.catalog import data_hash
    from musigma.evaluation.record import Record, provenance
    from musigma.networks import card

    costs = card(chosen.network, scale=chosen.scale)
    return Record(
        kind="benchmark",
        model={"name": costs.name, "scale": costs.scale, "params": costs.params, "digest": ""},
        protocol={"name": "train-step", "batch": chosen.batch, "patch": chosen.patch},
        data={"name": dataset.name, "num_images": len(dataset.items), "hash": data_hash(dataset)},
        result=result,
        provenance=provenance(device),
        seed=chosen.seed,
    )
