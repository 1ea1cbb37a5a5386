"""Subsequence attention and its plain twin; depends on torch alone."""

if __name__ != "contraflow.kernels":
    raise ImportError(
        "import contraflow.kernels, not the bare name kernels: a module must not be loaded twice"
    )
