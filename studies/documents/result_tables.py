"""Tables made from records; README and docs print them as they are generated."""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from musigma.degradations.pairs import PAIRS
from musigma.evaluation.record import Record, load_record
from musigma.model import load
from musigma.networks import weights_file
from musigma.networks.weight_choices import CHOICES
from musigma.training.recipe import Recipe, default_values
from studies.documents import joint_tables
from studies.documents.measured_weights import measured_weights
from studies.measurements import damage_rows, photo_rows
from studies.measurements.unlike_inputs import INPUTS

SETS = ("Set5", "Set14", "B100", "Urban100")
Rows = list[list[str]]


def read_records(folder: Path) -> list[Record]:
    """Read every record below a folder, sorted by path."""
    return [load_record(path) for path in sorted(folder.rglob("*.json"))]


def markdown(headings: Sequence[str], rows: Rows, *, num_text: int = 1) -> str:
    """Format a table; the first `num_text` columns are text, the others are numbers.

    Example:
        >>> print(markdown(["set", "PSNR"], [["Set5", "37.99"]]))
        | set | PSNR |
        | --- | ---: |
        | Set5 | 37.99 |
    """
    rules = ["---"] * num_text + ["---:"] * (len(headings) - num_text)
    lines = [headings, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, form: str) -> str:
    """Format a number of a record; records hold ``null`` for an infinite PSNR.

    Example:
        >>> number(37.962, ".2f"), number(None, ".2f")
        ('37.96', 'inf')
    """
    return "inf" if value is None else format(value, form)


def fidelity_table(records: Iterable[Record]) -> str:
    """PSNR and SSIM on Y of each model on each set."""
    own = [record for record in records if not _recipe(record).get("keep_mean")]

    def cell(result: dict[str, Any]) -> str:
        return f"{number(result['psnr_y'], '.2f')} / {number(result['ssim_y'], '.4f')}"

    return _by_set(own, cell, needs="psnr_y")


def uncertainty_table(records: Iterable[Record]) -> str:
    """PLL of the raw and the calibrated sigma, PSNR of the raw one on RGB and Y, and coverage."""

    def cell(result: dict[str, float]) -> str:
        on_y = f"{result['sigma_psnr_y']:.2f}" if "sigma_psnr_y" in result else "-"
        likelihoods = f"{result['pll']:.2f} / {result['pll_calibrated']:.2f}"
        return f"{likelihoods} / {result['sigma_psnr']:.2f} / {on_y} / {result['coverage']:.1%}"

    enlarged = [record for record in records if record.protocol["name"] != "denoise"]
    return _by_set(_own_calibration_last(enlarged), cell, needs="pll_calibrated")


def _own_calibration_last(records: Iterable[Record]) -> list[Record]:
    """Sort records so that a calibration stored in the weights follows one made in memory.

    The leaderboard calibrates every method in the same way, in memory. Users get the calibration
    of the weights, so it comes last and is the one that is shown.
    """
    return sorted(
        records,
        key=lambda record: record.model.get("calibration", {}).get("method") != "pooled-quantile",
    )


def denoising_table(records: Iterable[Record]) -> str:
    """PSNR of each denoiser, and where it has error bars the coverage of its intervals."""
    cells: dict[str, dict[tuple[str, float], str]] = {}
    for record in records:
        if record.kind != "evaluation" or _is_study(_recipe(record)):
            continue
        if record.protocol["name"] == "denoise":
            cell = number(record.result["psnr"], ".2f")
            if "coverage" in record.result:
                cell += f" / {record.result['coverage']:.1%}"
            column = record.data["name"], record.protocol["noise_std"]
            cells.setdefault(_label(record.model), {})[column] = cell
    columns = sorted({column for row in cells.values() for column in row})
    rows = [[name, *(row.get(column, "") for column in columns)] for name, row in cells.items()]
    return markdown(["model", *(f"{name} {noise:g}" for name, noise in columns)], rows)


def speed_table(records: Iterable[Record]) -> str:
    """Milliseconds of a training step, ours beside the plain loops."""
    newest = [record for record in records if record.protocol["name"] == "train-step"]
    if not newest:
        return ""
    record = max(newest, key=lambda record: record.provenance["date"])
    rows = [
        [name, f"{t['median_ms']:.2f}", f"{t['patches_per_second']:.0f}", f"{t['tflops']:.0f}"]
        for name, t in record.result["timings"].items()
    ]
    headings = [f"step on one {record.provenance['device']}", "ms", "patches/s", "TFLOP/s"]
    return markdown(headings, rows)


def steps_table(records: Iterable[Record]) -> str:
    """Time, memory and rate of the step of every network of the study, beside a plain loop."""
    rows = []
    for record in records:
        if record.protocol["name"] == "train-step-zoo":
            for name, measured in record.result.items():
                if "error" not in measured:
                    rows.append([name.removeprefix("zoo-"), *_step_cells(measured)])
    headings = ["network", "parameters", "plain loop (ms)", "l1 (ms)", "with sigma (ms)"]
    headings += ["times as fast", "TFLOP/s", "memory (GiB)", "step"]
    return markdown(headings, rows)


def _step_cells(measured: dict[str, Any]) -> list[str]:
    plain, ours = (measured["timings"][name] for name in ("plain loop", "l1"))
    with_sigma = [t for name, t in measured["timings"].items() if "sigma" in name]
    return [
        f"{measured['params'] / 1e6:.2f}M",
        *(f"{timing['median_ms']:.1f}" for timing in (plain, ours)),
        f"{with_sigma[0]['median_ms']:.1f}" if with_sigma else "",
        f"{measured['times_faster_than_plain']:.1f}",
        f"{ours['tflops']:.0f}",
        f"{ours['memory_gib']:.1f}",
        "compiled" if measured["compiled"] else "captured",
    ]


def short_speed_table(records: Iterable[Record]) -> str:
    """The fastest engine of each machine beside plain PyTorch, and a training step."""
    rows = []
    records = list(records)
    for record in records:
        if record.protocol["name"] == "inference":
            protocol, timings = record.protocol, record.result["timings"]
            size = f"{protocol['width']}x{protocol['height']}"
            task = f"enlarge {size} x2 with sigma, {record.model['name']}"
            plain, best = timings["torch"], timings[record.result["fastest"]]
            cells = [f"{plain['median_ms']:.0f}", f"{best['median_ms']:.1f}"]
            rows.append([task, record.provenance["device"], *cells, f"{best['times_faster']:.1f}"])
    for record in records:
        if record.protocol["name"] == "train-step":
            timings, result = record.result["timings"], record.result
            cells = [f"{timings[name]['median_ms']:.1f}" for name in ("plain loop", "l1")]
            ratio = f"{result['times_faster_than_plain']:.1f}"
            rows.append(["training step, batch 16", record.provenance["device"], *cells, ratio])
    headings = ["task", "device", "plain PyTorch (ms)", "musigma (ms)", "times as fast"]
    return markdown(headings, rows, num_text=2)


def runs_table(records: Iterable[Record]) -> str:
    """PSNR of every run that trained a mean and was validated, the best first within a scale."""
    rows = []
    for record in records:
        recipe, result = _recipe(record), record.result
        if record.kind != "training" or _is_study(recipe) or recipe.get("keep_mean"):
            continue
        if validation := result["validation"]:
            scale, score = record.model["scale"], validation.get("psnr_y", validation.get("psnr"))
            cells = [recipe["objective"], recipe["optimizer"], str(recipe["batch"])]
            cells += [f"{recipe['learning_rate']:g}", f"{result['seconds']:.0f}"]
            cells += [str(result["steps"]), number(score, ".2f")]
            order = -math.inf if score is None else -score
            rows.append((scale, order, [f"{record.model['name']} x{scale}", *cells]))
    headings = ["network", "objective", "optimizer", "batch", "rate", "seconds", "steps", "dB"]
    return markdown(headings, [row for _, _, row in sorted(rows)])


def tiles_table(records: Iterable[Record]) -> str:
    """How far tiles are off the whole picture, of each network that sees all of it at once."""
    rows = [
        [name, f"{difference['largest_share']:.1e}", f"{difference['rms_share']:.1e}"]
        for record in records
        if record.protocol["name"] == "tile-differences"
        for name, difference in record.result.items()
    ]
    return markdown(["network", "largest", "root mean square"], rows)


SHIPPED = {"bicubic", "edsr-baseline", "fast"}


def short_fidelity_table(records: Iterable[Record]) -> str:
    """PSNR on Y of the shipped models and of bicubic interpolation."""
    rows = _short_rows(records, lambda result: number(result["psnr_y"], ".2f"), needs="psnr_y")
    return markdown(["PSNR on Y (dB)", *SETS], rows)


def short_coverage_table(records: Iterable[Record]) -> str:
    """Coverage of the shipped models' own intervals."""
    rows = _short_rows(records, lambda result: f"{result['coverage']:.1%}", needs="coverage")
    return markdown(["values inside their 90 % interval", *SETS], rows)


def _short_rows(
    records: Iterable[Record], cell: Callable[[dict[str, Any]], str], *, needs: str
) -> Rows:
    """Return a row for each shipped super-resolution model; files are found by their digest."""
    digests = {load(path).digest for path in sorted(weights_file.SHIPPED.glob("*.safetensors"))} | {
        ""
    }
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for record in _own_calibration_last(records):
        model = record.model
        if record.kind != "evaluation" or "baseline" in model or needs not in record.result:
            continue
        if model["name"] in SHIPPED and model["digest"] in digests:
            row = cells.setdefault((model["name"], model["scale"]), {})
            row[record.data["name"]] = cell(record.result)
    return [
        [f"{name} x{scale}", *(row.get(data, "") for data in SETS)]
        for (name, scale), row in sorted(cells.items(), key=lambda item: item[0][::-1])
    ]


def weights_table(records: Iterable[Record]) -> str:
    """Size, fidelity, likelihood and time of the weights that people choose by a short name."""
    numbers = measured_weights(records)
    rows = []
    for name, choice in CHOICES.items():
        for scale in weights_file.shipped_weights().get(choice.weights, ()):
            values = numbers[f"{choice.weights}-x{scale}"]
            times = {key.startswith("NVIDIA"): t for key, t in values.get("times", {}).items()}
            rows.append(
                [
                    f"`{name}` x{scale}",
                    choice.purpose,
                    f"{values['params'] / 1e6:.2f} M / {values['bytes'] / 1e6:.1f} MB",
                    *(_score(values, "psnr_y", name) for name in ("B100", "Urban100")),
                    _score(values, "pll", "B100"),
                    f"{times[False]['s_per_megapixel']:.1f}" if False in times else "-",
                    f"{times[True]['ms']:.1f}" if True in times else "-",
                ]
            )
    headings = ["weights", "for", "size", "B100 (dB)", "Urban100 (dB)", "PLL, B100"]
    headings += ["CPU, s per megapixel", "H200, ms for 640x360"]
    return markdown(headings, rows, num_text=2)


def _score(values: dict[str, Any], key: str, name: str) -> str:
    return number(values[key][name], ".2f") if name in values.get(key, {}) else "-"


def unlike_inputs_table(records: Iterable[Record]) -> str:
    """PSNR and coverage of the shipped weights on inputs of many kinds."""
    by_model = {
        record.model["name"]: record.result
        for record in records
        if record.protocol["name"] == "unlike-inputs"
    }
    headings = [
        f"{name}: {column}" for name in by_model for column in ("PSNR on Y (dB)", "inside 90 %")
    ]
    rows = []
    for kind in INPUTS:
        cells = [kind]
        for result in by_model.values():
            values = result[kind]
            cells += [f"{values['psnr_y']:.2f}", f"{values['coverage']:.1%}"]
        rows.append(cells)
    return markdown(["input made by", *headings], rows)


def photo_table(records: Iterable[Record]) -> str:
    """PSNR and coverage of the weights for photographs on every second image of B100."""
    cells: dict[str, dict[int, str]] = {}
    for record in records:
        if (record.model.get("name"), record.data["name"]) == ("photo", photo_rows.NAME):
            cell = f"{record.result['psnr_y']:.2f} / {record.result['coverage']:.1%}"
            row = cells.setdefault(record.protocol["degradation"], {})
            row[record.model["scale"]] = cell
    rows = []
    for text, row in cells.items():
        shown = text.replace("|", r"\|")  # a bar would end the cell
        rows.append([f"`{shown}`", *(row.get(scale, "") for scale in (2, 4))])
    return markdown(["input made by", "x2", "x4"], rows)


def photo_clean_table(records: Iterable[Record]) -> str:
    """PSNR and coverage of the weights for photographs that keep the size."""
    rows, sets = [], {row.data for row in photo_rows.rows_of(1)}
    for record in records:
        is_photo = (record.model.get("name"), record.model.get("scale")) == ("photo", 1)
        if is_photo and record.data["name"] in sets:
            made_by = record.protocol["degradation"].replace("|", r"\|")
            shown = "real noise of cameras" if made_by == PAIRS else f"`{made_by}`"
            result = record.result
            scores = (f"{result[key]:.2f}" for key in ("psnr", "psnr_y"))
            rows.append([record.data["name"], shown, *scores, f"{result['coverage']:.1%}"])
    headings = ["set", "input made by", "PSNR on RGB (dB)", "PSNR on Y (dB)", "inside 90 %"]
    return markdown(headings, rows, num_text=2)


GUARDED = {
    "clean": "bicubic",
    "JPEG 75": "bicubic | jpeg(75)",
    "blur 1.6": "blur(1.6) | bicubic | round",
    "noise 10": "bicubic | noise(10) | round",
}
"""Inputs of the table of the guard, and their names in its record."""


def guard_table(records: Iterable[Record]) -> str:
    """Share of the inputs that the guard speaks of, for the weights made for clean inputs."""
    rows = []
    for record in records:
        if record.protocol["name"] == "guard-rates":
            for data, part in (("DIV2K_crops, ten folds", "validation"), ("B100", "benchmark")):
                for scale, rates in record.result[part].items():
                    rows.append([data, scale, *(f"{rates[text]:.0%}" for text in GUARDED.values())])
    return markdown(["pictures", "scale", *GUARDED], rows, num_text=2)


def damage_table(records: Iterable[Record]) -> str:
    """Coverage and the guard's word for pictures damaged in ways no calibration was made for."""
    rows = list(damage_rows.rows(records, {"looked at": "", "sealed": " *"}))
    return markdown(damage_rows.HEADINGS, rows)


def fresh_damage_table(records: Iterable[Record]) -> str:
    """The same for damage that the guard has learned of since, and for damage in no list."""
    rows = list(damage_rows.rows(records, {"learned": "", "fresh": " *"}))
    return markdown(damage_rows.HEADINGS, rows)


def engines_table(records: Iterable[Record]) -> str:
    """Milliseconds of every engine on the machines that were measured."""
    rows = []
    for record in records:
        if record.protocol["name"] == "inference":
            protocol = record.protocol
            size = f"{protocol['width']}x{protocol['height']}"
            for name, values in record.result["timings"].items():
                milliseconds = (f"{values[key]:.1f}" for key in ("median_ms", "mean_only_ms"))
                psnr = number(values.get("psnr_y"), ".3f")
                ratio = f"{values['times_faster']:.2f}"
                place = [record.model["name"], record.provenance["device"], size]
                rows.append([*place, name, *milliseconds, ratio, psnr])
    headings = ["weights", "device", "input", "engine"]
    headings += ["ms", "ms without sigma", "times as fast", "Set5 (dB)"]
    return markdown(headings, rows, num_text=4)


def recipe_keys_table(_: Iterable[Record]) -> str:
    """Every key of a recipe with its meaning and default, from the class `Recipe`."""
    text = inspect.getdoc(Recipe) or ""
    lines = text.partition("Attributes:\n")[2].partition("\n\n")[0]
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", lines, flags=re.MULTILINE))
    rows = []
    for item in fields(Recipe):
        required = item.default is MISSING and item.default_factory is MISSING
        default = "required" if required else f"`{_as_toml(default_values()[item.name])}`"
        meaning = " ".join(meanings[item.name].split()).replace("``", "`").replace("|", "\\|")
        rows.append([f"`{item.name}`", meaning, default])
    return markdown(["key", "meaning", "default"], rows, num_text=3)


def _as_toml(value: Any) -> str:
    if value is None:
        return "none"
    return json.dumps(value).replace("{}", "{ }")


def quantities_table(records: Iterable[Record]) -> str:
    """Coverage of the intervals of quantities, and their width over that of fitted bars."""
    rows = joint_tables.quantity_rows(records)
    return markdown(["scale", "set (pictures)", *joint_tables.KINDS], rows, num_text=2)


def joint_likelihood_table(records: Iterable[Record]) -> str:
    """Likelihood of joint errors."""
    headings = ["scale", "set (pictures)", "gain (nat)", "least gain", "pictures below 0"]
    return markdown(headings, joint_tables.likelihood_rows(records), num_text=2)


def joint_samples_table(records: Iterable[Record]) -> str:
    """What samples of joint errors are like."""
    headings = [
        "scale",
        "set (pictures)",
        "agreement (dB)",
        "spread",
        "mean of 64 (dB)",
        "mean, made to agree (dB)",
        "spectrum (dB)",
        "of the mean (dB)",
    ]
    return markdown(headings, joint_tables.sample_rows(records), num_text=2)


def audit_table(records: Iterable[Record]) -> str:
    """What audits of the enlargements of several programs gave."""
    headings = [
        "enlargement",
        "truly wrong",
        "expected wrong",
        "outside 99 %",
        "invented",
        "AUROC",
        "flagged",
    ]
    return markdown(headings, joint_tables.audit_rows(records))


TABLES: dict[str, Callable[[Iterable[Record]], str]] = {
    "fidelity": fidelity_table,
    "uncertainty": uncertainty_table,
    "denoising": denoising_table,
    "training speed": speed_table,
    "steps of all networks": steps_table,
    "training runs": runs_table,
    "tile differences": tiles_table,
    "short fidelity": short_fidelity_table,
    "short coverage": short_coverage_table,
    "short speed": short_speed_table,
    "weights": weights_table,
    "unlike inputs": unlike_inputs_table,
    "photo": photo_table,
    "photo x1": photo_clean_table,
    "guard": guard_table,
    "damage": damage_table,
    "fresh damage": fresh_damage_table,
    "engines": engines_table,
    "recipe keys": recipe_keys_table,
    "quantities": quantities_table,
    "joint likelihood": joint_likelihood_table,
    "joint samples": joint_samples_table,
    "audit": audit_table,
}


def _by_set(
    records: Iterable[Record], cell: Callable[[dict[str, float]], str], *, needs: str
) -> str:
    cells: dict[tuple[int, str], dict[str, str]] = {}
    for record in records:
        if "baseline" in record.model:
            continue  # it has a table of its own: the leaderboard
        if record.data["name"] not in SETS or _is_study(_recipe(record)):
            continue
        if record.kind == "evaluation" and needs in record.result:
            key = (record.model["scale"], _label(record.model))
            cells.setdefault(key, {})[record.data["name"]] = cell(record.result)
    rows = [
        [name, *(by_set.get(data, "") for data in SETS)]
        for (_, name), by_set in sorted(cells.items())
    ]
    return markdown(["model", *SETS], rows)


def _recipe(record: Record) -> dict[str, Any]:
    """Return what was trained, of a run or of weights of ours; nothing of others' weights."""
    training: dict[str, Any] = record.model.get("training") or record.model
    return training.get("recipe") or {}


def _is_study(recipe: dict[str, Any]) -> bool:
    # Runs of equal steps are compared with one another in the study table.
    return recipe.get("steps") is not None


def _label(model: dict[str, Any]) -> str:
    label = model["name"] if model["scale"] == 1 else f"{model['name']} x{model['scale']}"
    if not model["digest"]:
        return label
    # Weights of ours say how they were trained; released files of others do not.
    training = model.get("training")
    if not training:
        return f"{label} (released weights)"
    recipe, seconds = training["recipe"], f"{training['seconds']:.0f} s"
    start = Path(recipe.get("start_from") or "").stem
    if recipe.get("keep_mean"):
        return f"{label}, mean of {start}, {recipe['objective']}, {seconds}"
    return f"{label}, {recipe['objective']}, {seconds}{f' from {start}' if start else ''}"
