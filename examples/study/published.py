"""Predictions held against public measurements: where they agree, where they do not, and what the model leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from markdown import table

from contraflow.designer.costs.hardware import model_on_hardware
from contraflow.designer.costs.presets import HARDWARE, MODELS
from contraflow.designer.costs.training import Training
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS, Refusal, Request
from contraflow.designer.splits import equal_compute

FIGURES: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SUBSEQUENCES = 4
"""What the authors' scripts use."""
GB = 1e9
NEAR = 0.25
"""How far a plausible setting may be from the published bytes of 1f1b."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the tables do not state: how the GPUs of a row are divided, and how many microbatches there were."""

    devices: int
    tensor_parallel: int
    replicas: int
    batch_size: int
    microbatches: int = 8

    def __str__(self) -> str:
        parts = [f"P = {self.devices}", f"tensor parallel {self.tensor_parallel}"]
        parts += [f"{self.replicas} replicas"] if self.replicas > 1 else []
        return ", ".join([*parts, f"{self.batch_size} sequence{'s' * (self.batch_size > 1)} a microbatch"])


def made(name: str, model: str, setting: Setting, sequence: int, count: int) -> Schedule:
    """A schedule of the shape, its subsequences of equal compute as in the paper."""
    kind = GENERATORS[name]
    split = equal_compute(sequence, count if kind.cuts else 1, MODELS[model])
    return kind.make(
        Request(
            setting.devices,
            (sequence,) * setting.microbatches,
            (split,) * setting.microbatches,
            kind.stages_per_device,
        )
    )


@cache
def shown(
    name: str, model: str, sequence: int, setting: Setting, count: int = SUBSEQUENCES
) -> Preview | None:
    """A schedule's preview on A100s; None for a shape that its generator does not make."""
    training = Training(
        batch_size=setting.batch_size, tensor_parallel=setting.tensor_parallel, replicas=setting.replicas
    )
    # Learned positions, as many as the sequence is long.
    shape = replace(MODELS[f"gpt-{model.lower()}"], positions=sequence)
    costs = model_on_hardware(shape, HARDWARE["a100"], training, f"gpt-{model.lower()}")
    try:
        schedule = made(name, f"gpt-{model.lower()}", setting, sequence, count)
    except Refusal:
        return None
    return preview(schedule, costs)


def peak(name: str, model: str, sequence: int, setting: Setting) -> float:
    """The fullest GPU's bytes."""
    found = shown(name, model, sequence, setting)
    assert found is not None
    assert found.peak_bytes is not None
    return found.peak_bytes


def settings(model: str, gpus: int) -> Iterator[Setting]:
    """The divisions that fit the model: layers and heads divide, tensor parallelism within a node of 8."""
    shape = FIGURES["models"][model]
    for devices in (2, 4, 8, 16):
        for parts in (1, 2, 4, 8):
            replicas = gpus // (devices * parts)
            if (
                devices * parts * replicas == gpus
                and not shape["layers"] % devices
                and not shape["heads"] % parts
            ):
                yield from (Setting(devices, parts, replicas, size) for size in (1, 2))


def ratio(model: str, sequence: int, setting: Setting) -> float:
    """Predicted memory of seq1f1b over that of 1f1b."""
    return peak("seq1f1b", model, sequence, setting) / peak("1f1b", model, sequence, setting)


def assumed(model: str, rows: Sequence[Mapping[str, Any]]) -> Setting:
    """One setting for all rows of a model: of those that bring 1f1b near its published bytes, the best ratios."""
    plausible = [
        setting
        for setting in settings(model, rows[0]["gpus"])
        if all(
            abs(peak("1f1b", model, row["sequence"], setting) / (GB * row["1f1b"]) - 1) < NEAR for row in rows
        )
    ]
    return min(
        plausible,
        key=lambda setting: max(
            abs(ratio(model, row["sequence"], setting) * row["1f1b"] / row["seq1f1b"] - 1) for row in rows
        ),
    )


def error(predicted: float, published: float) -> str:
    """How far a prediction is from what was published."""
    return f"{100 * (predicted / published - 1):+.1f} %"


def text() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, memory_page(), throughput_page(), fork_page(), MINDSPEED])


def memory_page() -> str:
    """Memory of seq1f1b over 1f1b, model by model."""
    lines = []
    for model in FIGURES["models"]:
        rows = [
            row
            for row in FIGURES["seq1f1b_peak_gb"]
            if row["model"] == model and None not in (row["1f1b"], row["seq1f1b"])
        ]
        setting = assumed(model, rows)
        for row in rows:
            sequence = row["sequence"]
            published, predicted = row["seq1f1b"] / row["1f1b"], ratio(model, sequence, setting)
            lines.append(
                [
                    f"{model}, {row['gpus']} GPUs: {setting}",
                    f"{sequence:,}",
                    *(
                        f"{peak(name, model, sequence, setting) / GB:.1f} ({row[name]:.1f})"
                        for name in ("1f1b", "seq1f1b")
                    ),
                    f"{predicted:.3f}",
                    f"{published:.3f}",
                    error(predicted, published),
                ]
            )
    heads = ["model and setting", "tokens", "1f1b GB", "seq1f1b GB", "ratio", "published", "error"]
    return f"{MEMORY}\n{table(heads, lines)}"


def throughput_page() -> str:
    """Tokens per second of 7B."""
    rows = FIGURES["seq1f1b_throughput_7B_32gpu"]
    setting = assumed(
        "7B", [row for row in FIGURES["seq1f1b_peak_gb"] if row["model"] == "7B" and row["1f1b"]]
    )
    lines = []
    for row in rows:
        for name in ("1f1b", "interleaved-1f1b", "seq1f1b", "seq1f1b-interleaved"):
            found = shown(name, "7B", row["sequence"], replace(setting, microbatches=row["microbatches"]))
            if found is None or row[name] is None:
                continue
            assert found.tokens_per_second is not None
            rate = found.tokens_per_second
            lines.append(
                [name, f"{row['sequence']:,}", f"{row['microbatches']}", f"{rate:,.0f}", f"{row[name]:,}",
                 error(rate, row[name])]
            )  # fmt: skip
    heads = ["schedule", "tokens", "microbatches", "tokens/s", "published", "error"]
    return f"{THROUGHPUT.format(setting=setting)}\n{table(heads, lines)}"


def fork_page() -> str:
    """The series over k = 1, 2, 4, 8: memory fitted on the first two, throughput relative to the first."""
    fork = FIGURES["fork_1.3B"]
    setting = Setting(fork["devices"], 1, 1, 1, fork["microbatches"])
    found = [shown("seq1f1b", "1.3B", fork["sequence"], setting, count) for count in fork["subsequences"]]
    previews = [preview for preview in found if preview is not None]
    held = [preview.peak for preview in previews]
    each = (fork["peak_gb"][0] - fork["peak_gb"][1]) / (held[0] - held[1])
    rest = fork["peak_gb"][0] - each * held[0]
    lines = []
    for index, count in enumerate(fork["subsequences"]):
        predicted, published = rest + each * held[index], fork["peak_gb"][index]
        rate = previews[0].step / previews[index].step
        measured = fork["tokens_per_s"][index] / fork["tokens_per_s"][0]
        lines.append(
            [f"{count}", f"{held[index]:.3f}", f"{predicted:.1f}", f"{published:.1f}", error(predicted, published),
             f"{rate:.3f}x", f"{measured:.3f}x", error(rate, measured)]
        )  # fmt: skip
    heads = ["k", "activation", "GB", "published", "error", "speed-up over k = 1", "published", "error"]
    return f"{FORK.format(each=each, rest=rest)}\n{table(heads, lines)}"


INTRODUCTION = """\
# Predictions against published figures

Made by `make study` from `published.json`, facts of public tables. The model predicts what Contraflow's own engine
would keep and take; the published runs are of other engines, whose settings are mostly not stated.
"""

MEMORY = """\
## Memory of Seq1F1B over 1F1B

Predicted with k = 4 subsequences of equal compute, bfloat16 with float32 gradients and master weights, positions
learned for the whole sequence, 8 microbatches. How the GPUs were divided is not stated but for 30B, nor how many
sequences a microbatch holds: one setting is assumed for all rows of a model, the one that predicts the ratios best of
those that bring 1f1b's bytes within a quarter of what was published. In brackets: published.
"""

THROUGHPUT = """\
## Throughput of 7B on 32 A100s

{setting}, as for its memory. The model knows no reason why the published interleaved Seq1F1B is slower than the plain
one, whose idle time is more: it has no host that falls behind when actions get short, and messages that never disturb
the kernels beside them. At 131,072 tokens it takes attention to be slower than it was.
"""

FORK = """\
## A fork's series over k: 1.3B, P = 4, M = 4, 32,768 tokens

Memory is fitted on k = 1 and 2 as {rest:.1f} GB and {each:.2f} GB for each microbatch of activation, and predicted
from there. Speed-ups are those of the model on A100s with equal compute, relative to k = 1; which GPUs were used is not
stated. The model leaves out launches of many small kernels and copies of keys and values, both of which grow with k.
"""

MINDSPEED = """\
## Not predicted

MindSpeed's Qwen3-4B (8 stages, 16,384 tokens, k = 4: 1.14 times as fast, 26.9 against 46.2 GB) runs on hardware that
has no preset here, with a number of microbatches that is not stated.
"""
