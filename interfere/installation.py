"""Where interfere is installed, and the pip command that adds an extra to this installation."""

import shlex
import tomllib
from pathlib import Path

DISTRIBUTION = "interfere-gpu"  # on the package index, where `interfere` is another project
HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages: the checkout, or site-packages."""

LIBRARIES = {
    "serve": ("onnxruntime", "highspy", "grpc_health", "grpc_reflection", "prometheus_client"),
    "dashboard": ("starlette", "uvicorn"),
    "profile": ("torch", "psutil"),
    "testing": ("pytest", "hypothesis"),
    "train": ("pyarrow", "pandas", "sklearn", "lightgbm", "mlflow", "onnx", "onnxscript", "onnxmltools"),
    "tune": ("optuna",),
    "ray": ("ray",),
    "dask": ("distributed",),
}
"""Extra → the import names of what it installs; each library stands under one extra that brings it."""


def install_line(*extras: str) -> str:
    """Return the pip command that installs interfere with `extras` (none: the bare install).

    In a checkout it installs that checkout, editable. An installed wheel is extended under the distribution's name:
    pip finds it installed and adds the libraries of the extras alone.
    """
    suffix = f"[{','.join(extras)}]" if extras else ""
    if not is_checkout():
        return f"pip install {shlex.quote(DISTRIBUTION + suffix)}"
    folder = "." if Path.cwd() == HOME else str(HOME)
    return f"pip install -e {shlex.quote(folder + suffix)}"


def is_checkout(home: Path = HOME) -> bool:
    """Tell whether the packages lie in a clone of the project, beside its pyproject.toml."""
    try:
        project = tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(project.get("project", {}).get("name") == DISTRIBUTION)


def extra_of(library: str) -> str | None:
    """Return the extra that brings a library (its import name), or None when no extra does."""
    return next((extra for extra, libraries in LIBRARIES.items() if library in libraries), None)
