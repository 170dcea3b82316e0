"""Adapt weights to the pictures of a user: split, train, calibrate, measure, report."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from musigma.adaptation.crops import check_sizes, write_crops
from musigma.adaptation.fine_tuning import make_recipe
from musigma.adaptation.noisy_truth import (
    NoisyCalibration,
    calibrate_on_noisy,
    measure_on_noisy,
)
from musigma.adaptation.report import Report, write_report
from musigma.adaptation.source import Settings, Source, find_source
from musigma.adaptation.split import (
    LEAST_FOR_PROMISE,
    PARTS,
    Part,
    count_parts,
    in_words,
    split,
)
from musigma.adaptation.state import State, open_state
from musigma.datasets.catalog import Dataset, describe_data, find_dataset
from musigma.evaluation.calibrate import collect_held_out
from musigma.evaluation.evaluate import describe_model, evaluate, evaluate_model
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.reference import measure_reference
from musigma.evaluation.restored_pairs import Progress, read_pair
from musigma.functional.noisy_pairs import MeasuredNoise, fit_noise, measure_difference
from musigma.model import Model, load, save
from musigma.prediction.device import select_device_and_threads
from musigma.training.run_log import validated_psnr
from musigma.training.trainer import WEIGHTS, train
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.fitting import fit
from musigma.uncertainty.methods import COVERAGES, DEFAULT_COVERAGE, Method

MEASURED = ("GeoTIFF", "OME-TIFF")
"""Formats of measured values, as TIFF files of microscopes are, that an adaptation is for."""

WORK, RUN, REPORT, RECORD = "work", "run", "report.html", "record.json"

LEAST_TRAINING_SHARE = 0.5
"""Share of the time that is left to training, however long the rest takes."""

CLOSING_SECONDS = 15.0
"""For the page and the files."""

INPUT_SECONDS = 0.5
"""For the measuring of each input, which tells unlike pictures later."""

MAX_INPUTS = 100
"""Inputs that are measured at most."""


@dataclass(frozen=True)
class Show:
    """How a run tells what it does.

    Attributes:
        line: Called with a sentence.
        bar: Called with the name of a stage; gives a context with a function for the progress.
    """

    line: Callable[[str], None] = lambda _: None
    bar: Callable[[str], AbstractContextManager[Progress]] = lambda _: nullcontext(lambda *_: None)


@dataclass(frozen=True)
class Adapted:
    """What an adaptation gave.

    Attributes:
        model: The adapted weights, calibrated.
        record: The numbers on the pictures held back, before and after.
        folder: Where all files are.
        improved: Whether training improved the start; otherwise the weights are those of the start.
    """

    model: Model
    record: Record
    folder: Path
    improved: bool


def adapt(
    settings: Settings,
    folder: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    show: Show | None = None,
) -> Adapted:
    """Adapt weights to pictures, calibrate them and write weights, card, report and record.

    Args:
        settings: The pictures, the weights to start from, and the time.
        folder: Where everything goes.
        resume: Whether to continue the run in the folder, if there is one.
        device: Where to compute; ``auto`` takes a GPU when there is one.
        show: Tells what is done.

    Raises:
        DataError: The pictures are too few, or do not fit.
        ConfigError: The settings or the folder do not fit.
        StoppedError: A signal ended the training; it can be resumed.
    """
    run = Run(open_state(folder, settings, resume=resume), device, show or Show())
    run.prepare()
    run.measure_start()
    run.train()
    return run.finish()


def gain_is_certain(gains: Sequence[float]) -> bool:
    """Return whether weights are better than others, and not by the chance of the pictures.

    Args:
        gains: Differences of PSNR, one for each picture; their mean must exceed its standard error.

    Example:
        >>> gain_is_certain([0.2, 0.1, 0.3]), gain_is_certain([0.9, -0.4, -0.3])
        (True, False)
    """
    error = float(np.std(gains, ddof=1)) / len(gains) ** 0.5
    return float(np.mean(gains)) > max(error, 0.0)


class Run:
    """An adaptation under way; its methods are its stages, in their order.

    Args:
        state: What is done already.
        device: Where to compute.
        show: Tells what is done.
    """

    def __init__(self, state: State, device: str, show: Show) -> None:
        self.started = time.monotonic()
        self.state, self.show, self.device_name = state, show, device
        self.settings, self.folder = state.settings, state.folder
        self.source: Source = find_source(state.settings)
        self.counts = count_parts(len(self.source.dataset.items))
        check_sizes(self.source.dataset.items)
        self.device = select_device_and_threads(device)

    @property
    def work(self) -> Path:
        """Where windows and checkpoints are."""
        return self.folder / WORK

    @cached_property
    def protocol(self) -> Protocol:
        """How the pictures are measured."""
        network = self.source.model.network
        if self.source.inputs == "made":
            protocol = protocol_for(network, degradation=self.source.degrade)
        else:
            protocol = protocol_for(network, pairs=True)
        protocol.check(network)
        return protocol

    @property
    def noise(self) -> MeasuredNoise | None:
        """Noise of the targets, where these are noisy."""
        return None if self.state.noise is None else MeasuredNoise.from_json(self.state.noise)

    def part(self, part: Part) -> Dataset:
        """Return the windows of a part."""
        scale = None if self.source.inputs == "made" else self.source.scale
        dataset = find_dataset(self.work / part, scale=scale)
        return replace(dataset, name=self.source.dataset.name)

    def prepare(self) -> None:
        """Divide the pictures and cut windows from them."""
        _ = self.protocol  # refuses what cannot be measured, before anything is written
        for sentence in self.source.chosen:
            self.show.line(sentence)
        self.show.line(f"{sum(self.counts.values())} pictures: {in_words(self.counts)}")
        if self.state.prepared:
            return
        self.state.save()
        both_ways = self.source.inputs == "noisy-pairs"
        with self.show.bar("reading pictures") as progress:
            write_crops(
                split(self.source.dataset.items, seed=self.settings.seed),
                self.work,
                scale=self.source.scale,
                seed=self.settings.seed,
                both_ways=both_ways,
                value_range=self.settings.value_range,
                progress=progress,
            )
        if both_ways:
            self._measure_noise()
        self.state.prepared = True
        self.state.save()

    def _measure_noise(self) -> None:
        pairs = [read_pair(item, self.protocol) for item in self.part("training").items]
        self.state.noise = fit_noise(pairs).as_json()
        others = [
            read_pair(item, self.protocol) for part in PARTS[1:] for item in self.part(part).items
        ]
        differences = [measure_difference(pair) for pair in [*pairs[::2], *others]]
        wrong = [each for each in differences if not each.is_noise_alone]
        if wrong:
            shift = max(each.shift for each in wrong)
            offset = max(abs(each.offset) for each in wrong)
            self.state.warnings = [
                f"in {len(wrong)} of {len(differences)} pairs the two pictures differ by more than "
                f"noise (shifted by up to {shift:.1f} pixels, brightness by up to "
                f"{255 * offset:.1f} levels): their error bars are too small"
            ]

    def measure_start(self) -> None:
        """Measure the weights of the start on the pictures held back."""
        for warning in self.state.warnings:
            self.show.line(f"warning: {warning}")
        if self.state.before is not None:
            return
        model, held_back = self.source.model.to(self.device), self.part("held-back")
        began = time.monotonic()
        with self.show.bar("measuring the start") as progress:
            if self.noise is not None:
                before = measure_on_noisy(model, held_back, self.protocol, progress=progress)
            else:
                before = self._evaluate_start(model, held_back, progress)
        self.state.seconds_per_picture = (time.monotonic() - began) / len(held_back.items)
        with self.show.bar("measuring the start") as progress:
            self.state.validation = self._validated(model, progress)
        self.state.before = before
        self.state.save()

    def _validated(self, model: Model, progress: Progress) -> dict[str, float]:
        """Return the PSNR of each picture for validation."""
        dataset = self.part("validation")
        scores = evaluate(model.network, dataset, self.protocol, progress=progress).images
        return {name: validated_psnr(values) or 0.0 for name, values in scores.items()}

    def _evaluate_start(
        self, model: Model, held_back: Dataset, progress: Progress
    ) -> dict[str, Any]:
        calibration = model.calibration
        if calibration is not None and DEFAULT_COVERAGE in calibration.coverages:
            calibration = calibration.at(DEFAULT_COVERAGE)
        evaluation = evaluate(
            model.network, held_back, self.protocol, calibration=calibration, progress=progress
        )
        return {**evaluation.summary, "pictures": evaluation.images}

    def train(self) -> None:
        """Train for the time that is left, and keep the best weights, the start among them."""
        if self.state.seconds is None:
            # After training, the pictures held back are restored twice, the others once.
            once = self.counts["calibration"] + self.counts["validation"]
            restored = once + 2 * self.counts["held-back"]
            closing = CLOSING_SECONDS + restored * self.state.seconds_per_picture
            closing += INPUT_SECONDS * min(sum(self.counts.values()), MAX_INPUTS)
            budget = 60 * self.settings.minutes
            left = budget - (time.monotonic() - self.started) - closing
            self.state.seconds = max(left, LEAST_TRAINING_SHARE * budget)
        if self.state.finished:
            self.show.line("the training is finished; more --minutes continue it")
            return
        self.state.save()  # with the minutes of a run that is resumed with more of them
        recipe = make_recipe(
            self.source,
            self.work,
            seconds=self.state.seconds,
            seconds_per_validation=self.counts["validation"] * self.state.seconds_per_picture,
            on_gpu=self.device.type == "cuda",
            seed=self.settings.seed,
            noise=self.noise,
        )
        train(recipe, self.work / RUN, resume=True, device=self.device_name)

    def finish(self) -> Adapted:
        """Calibrate, measure, and write weights, card, report and record."""
        model = self._chosen()
        training = model.metadata["training"]
        model = replace(model, name=self.folder.resolve().name, metadata=self._metadata(training))
        model, noisy = self._calibrated(model)
        record = self._measured(model, noisy)
        model.save_pretrained(self.folder, results=[record])
        record.save(self.folder / RECORD)
        report = Report(
            model=model,
            start=self.source.model,
            start_name=f"{Path(self.source.start).name} x{self.source.scale}",
            record=record,
            counts=self.counts,
            held_back=self.part("held-back"),
            protocol=self.protocol,
            inputs=self.source.inputs,
            warnings=self.state.warnings,
            noisy=noisy,
        )
        with self.show.bar("writing the report") as progress:
            write_report(self.folder / REPORT, report, progress=progress)
        self.state.finished = True
        self.state.save()
        return Adapted(model, record, self.folder, improved=training["steps"] > 0)

    def _chosen(self) -> Model:
        """Return the trained weights, or those of the start where the gain may be chance."""
        trained = load(self.work / RUN / WEIGHTS).to(self.device)
        training = trained.metadata["training"]
        if not training["steps"]:
            return trained
        with self.show.bar("validating") as progress:
            after = self._validated(trained, progress)
        if gain_is_certain([after[name] - psnr for name, psnr in self.state.validation.items()]):
            return trained
        # Saved and loaded, so that the digest is that of the file that is written later.
        path = self.work / RUN / "start.safetensors"
        save(path, self.source.model.network, training=training | {"steps": 0})
        return load(path).to(self.device)

    def _metadata(self, training: dict[str, Any]) -> dict[str, Any]:
        start = self.source.model
        metadata: dict[str, Any] = {
            "training": training,
            "adapted_from": {"name": Path(self.source.start).name, "digest": start.digest},
        }
        if self.settings.value_range is not None:  # by which later files are restored, too
            metadata["value_range"] = list(self.settings.value_range)
        if "licence" in start.metadata:
            metadata["licence"] = start.metadata["licence"]
        return metadata

    def _calibrated(self, model: Model) -> tuple[Model, NoisyCalibration | None]:
        """Return the model with its calibration, and what is known of noisy targets."""
        dataset, noisy = self.part("calibration"), None
        with self.show.bar("calibrating") as progress:
            if self.noise is not None:
                noisy = calibrate_on_noisy(
                    model, dataset, self.protocol, self.noise, progress=progress
                )
                calibration = noisy.calibration
            else:
                calibration = self._fitted(model, dataset, progress)
        # What the inputs are like does not depend on the network, so that all pictures may tell it.
        everything = [item for part in reversed(PARTS) for item in self.part(part).items]
        measured = replace(dataset, items=tuple(everything[:MAX_INPUTS]))
        reference = measure_reference(measured, self.protocol, spoil=not model.takes_noise_level)
        stored = None if reference is None else reference.to_dict()
        data = calibration.data
        if self.settings.value_range is not None:
            data = {**(data or {}), "formats": list(MEASURED)}
        calibration = replace(calibration, reference=stored, data=data)
        return replace(model, calibration=calibration), noisy

    def _fitted(self, model: Model, dataset: Dataset, progress: Progress) -> Calibration:
        held_out = collect_held_out(model, dataset, self.protocol, progress=progress)
        enough = len(dataset.items) >= LEAST_FOR_PROMISE
        method: Method = "conformal-risk-control" if enough else "pooled-quantile"
        calibration = fit(held_out, method, coverage=DEFAULT_COVERAGE, other_coverages=COVERAGES)
        return replace(calibration, protocol=self.protocol.as_json(), data=describe_data(dataset))

    def _measured(self, model: Model, noisy: NoisyCalibration | None) -> Record:
        """Measure the pictures held back; the record has the numbers of the start as well."""
        held_back = self.part("held-back")
        with self.show.bar("measuring") as progress:
            if noisy is not None:
                record = self._noisy_record(model, held_back, noisy, progress)
            else:
                record = evaluate_model(model, held_back, self.protocol, progress=progress)
        assert self.state.before is not None
        before = {key: value for key, value in self.state.before.items() if key != "pictures"}
        counts = {part.replace("-", "_"): count for part, count in self.counts.items()}
        result = record.result | {"before": before, "pictures": counts}
        return replace(record, kind="adaptation", result=result, seed=self.settings.seed)

    def _noisy_record(
        self, model: Model, held_back: Dataset, noisy: NoisyCalibration, progress: Progress
    ) -> Record:
        result = measure_on_noisy(model, held_back, self.protocol, noisy, progress=progress)
        images = result.pop("pictures")
        return Record(
            kind="adaptation",
            model=describe_model(model) | model.stored_metadata(),
            protocol=self.protocol.as_json(),
            data={"num_images": len(held_back.items), **describe_data(held_back)},
            result=result,
            images=images,
            provenance=provenance(self.device),
        )
