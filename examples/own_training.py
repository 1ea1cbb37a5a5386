"""python own_training.py FILE.schedule.json, or torchrun --nproc-per-node DEVICES own_training.py FILE.schedule.json"""

import sys
from pathlib import Path

import torch
from own_model import ParallelTransformer

from contraflow.designer.format.check import load
from contraflow.engine import launch
from contraflow.engine.batch import Batch
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Place


def work(member, schedule):
    layout = schedule.layout
    pipeline = Pipeline(schedule, ParallelTransformer(), Place.of(member, layout), batch_size=2)
    text = torch.frombuffer(bytearray(Path(__file__).read_bytes() * 100), dtype=torch.uint8).long()
    for step in range(1, 21):
        starts = [31 * step + 17 * row for row in range(2 * layout.num_microbatches)]
        tokens = torch.stack([text[start : start + layout.longest + 1] for start in starts])
        update = pipeline.step([Batch.of(layout, tokens)])  # the same batch in every process
        member.report(f"step {step}: loss {update.loss:.4f}, gradient norm {update.norm:.2f}")


if __name__ == "__main__":
    schedule = load(sys.argv[1])
    launch.run(work, {"schedule": schedule}, schedule.layout.num_devices, print)
