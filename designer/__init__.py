"""Design, check, price and draw pipeline schedules; never imports torch."""

if __name__ != "contraflow.designer":
    raise ImportError(
        "import contraflow.designer, not the bare name designer: a module must not be loaded twice"
    )
