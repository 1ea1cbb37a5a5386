"""Execute exactly the schedule file: NCCL on GPUs, gloo on CPUs."""

if __name__ != "contraflow.engine":
    raise ImportError("import contraflow.engine, not the bare name engine: a module must not be loaded twice")
