"""Training on a schedule: what every process of a run does from start to end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
import torch.distributed as dist

from contraflow.designer.format import check
from contraflow.designer.format.fault import InvalidScheduleError
from contraflow.designer.format.schedule import Schedule
from contraflow.engine import trace as tracing
from contraflow.engine.config import TrainConfig
from contraflow.engine.data import Batches, DataError, open_corpus
from contraflow.engine.member import Member, Refused
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.profile import measure
from contraflow.engine.topology import Place, device_of
from contraflow.kernels.attention import Backend, choose

TRACED = 9
"""A trace is of the median one among so many last steps."""


@dataclass(frozen=True, slots=True)
class Started:
    """The run stands: every process has its stages and lanes."""

    attention: str
    owners: tuple[int, ...]
    """Of every stage the device that updates it."""
    num_parameters: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """One training step; the loss is the mean over all targets of the step."""

    step: int
    loss: float
    norm: float
    seconds: float
    tokens_per_s: float


def train(member: Member, *, text: str, config: TrainConfig, profile: bool, trace: bool = False) -> None:
    """Train on the schedule in `text`: the work of one process, for `launch.run`.

    Reports Started, with `profile` a Profile measured before the first step, a StepReport for each step, and with
    `trace` at last the Trace of the median one of the last TRACED, the first step left out where there are others.
    """
    schedule = agree(member, text, repr(config))
    run = config.run
    pipeline = build(member, schedule, config)
    counts = torch.tensor(
        float(sum(p.numel() for group in pipeline.owned for p in group.parameters)), dtype=torch.float64
    )
    num_parameters = int(pipeline.place.sum(counts))
    member.report(Started(attention_for(member, config).name, pipeline.lowered.owners, num_parameters))
    try:
        corpus = open_corpus(config.data)
        sequences = schedule.layout.sequences
        batches = Batches(corpus, sequences, run.batch_size, config.model.vocabulary, run.seed)
        if profile:
            member.report(measure(pipeline))
        num_tokens = run.accumulate * run.batch_size * sum(sequences)
        recorded: dict[int, tracing.Recorded] = {}
        for step in range(1, run.steps + 1):
            passes = [batches.batch((step - 1) * run.accumulate + index) for index in range(run.accumulate)]
            traced = trace and step > max(run.steps - TRACED, 1 if run.steps > 1 else 0)
            if traced:
                tracing.start(pipeline)
            update = pipeline.step([batch.to(member.torch_device) for batch in passes])
            if traced:
                recorded[step] = tracing.stop(pipeline, update.seconds)
            speed = num_tokens / update.seconds
            member.report(StepReport(step, update.loss, update.norm, update.seconds, speed))
    except DataError as error:
        raise Refused(str(error)) from None
    if recorded:
        member.report(tracing.gather(member, schedule, recorded, pipeline))
    pipeline.close()


def profile(member: Member, *, text: str, config: TrainConfig, repeats: int) -> None:
    """Measure what the schedule in `text` takes, and report the Profile: the work of one process, for `launch.run`."""
    pipeline = build(member, agree(member, text, repr(config)), config)
    member.report(measure(pipeline, repeats, parts=True))
    pipeline.close()


def agree(member: Member, text: str, config: str) -> Schedule:
    """The schedule in `text`, which all processes hold alike. Raises Refused where they do not, or it has faults."""
    digest = hashlib.sha256(f"{torch.__version__}\n{config}\n{text}".encode()).hexdigest()
    digests = [""] * member.world_size
    dist.all_gather_object(digests, digest)
    others = [rank for rank, other in enumerate(digests) if other != digests[0]]
    if others:
        raise Refused(
            f"ranks 0 and {others[0]} hold different schedules, configurations or versions: give all the same"
        )
    schedule, faults = check.examine(text)
    if schedule is None or faults:
        raise Refused(str(InvalidScheduleError("the schedule", faults)))
    if schedule.layout.num_devices != member.world_size:
        raise Refused(
            f"the schedule has {schedule.layout.num_devices} devices, there are {member.world_size} processes"
        )
    return schedule


def attention_for(member: Member, config: TrainConfig) -> Backend:
    """The attention backend of a run. Raises Refused where the one asked for cannot serve."""
    try:
        return choose(member.torch_device.type, getattr(torch, config.run.dtype), config.run.attention)
    except ValueError as error:
        raise Refused(str(error)) from None


def build(member: Member, schedule: Schedule, config: TrainConfig) -> Pipeline:
    """This process's part of the run. Raises Refused where model and schedule do not fit."""
    device = device_of(schedule.layout, member.rank)
    place = Place((device,), member.torch_device, member.backend)
    try:
        pipeline = Pipeline(
            schedule,
            config.model,
            place,
            attention_for(member, config),
            batch_size=config.run.batch_size,
            dtype=getattr(torch, config.run.dtype),
            seed=config.run.seed,
            optimizer=config.optimizer,
            labelled=config.run.label_messages,
        )
    except ValueError as error:
        raise Refused(str(error)) from None
    member.status = lambda: str(pipeline.executors[device].status)
    return pipeline
