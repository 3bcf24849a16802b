"""Prepare `.gpu-check`, which travels with the tree to a machine with a GPU; try it here; print the call.

The machine has Python 3.12 with numpy, and no package registry. It gets the parts of the pytriton wheel that are
needed, a Python 3.12 of this machine with its libpython (Triton's models run in it), and wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tritonwatch.local import wheel_folder

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / ".gpu-check"
LIMIT = 64 * 2**20
PYTHON = "3.12"

WHEELS = (
    *(
        "prometheus-client",
        "pydantic",
        "pydantic-core",
        "annotated-types",
        "typing-extensions",
        "typing-inspection",
    ),
    *(
        "pyyaml",
        "requests",
        "urllib3",
        "idna",
        "certifi",
        "charset-normalizer",
        "nvidia-ml-py",
        "promql-parser",
    ),
)
"""What the exporter and the check import, with what that needs."""

_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so|ld-linux")
"""Libraries that every machine has, and that must be its own."""


def prepare() -> None:
    """Fill the folder with what is not there yet."""
    CARRIED.mkdir(exist_ok=True)
    for name, make in {"triton.tar.xz": pack_triton, "python.tar.xz": pack_python}.items():
        if not (CARRIED / name).exists():
            print(f"packing {name}, a minute or two", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder) / name
                with tarfile.open(archive, "w:xz", preset=4) as opened:
                    make(opened)
                shutil.move(archive, CARRIED / name)
    download_wheels()


def pack_triton(archive: tarfile.TarFile) -> None:
    """Add tritonserver, its Python backend with one stub, and the libraries that they need."""
    site = wheel_folder().parents[1]
    server = "pytriton/tritonserver"
    for part in (
        "pytriton/__init__.py",
        f"{server}/bin/tritonserver",
        f"{server}/backends/python/libtriton_python.so",
        f"{server}/backends/python/triton_python_backend_utils.py",
        f"{server}/python_backend_stubs/{PYTHON}/triton_python_backend_stub",
        # libpython 3.13 is only for Triton's Python bindings.
        *(
            f"nvidia_pytriton.libs/{library.name}"
            for library in sorted((site / "nvidia_pytriton.libs").iterdir())
            if "libpython" not in library.name
        ),
    ):
        archive.add(site / part, f"site/{part}")


def pack_python(archive: tarfile.TarFile) -> None:
    """Add a Python with its standard library, without tests and packages, and what its modules need."""
    program = find_python()
    prefix = Path(_of(program, "sys.base_prefix"))
    library = prefix / "lib" / f"libpython{PYTHON}.so.1.0"
    standard = Path(_of(program, "__import__('sysconfig').get_path('stdlib')"))
    skipped = {
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "ensurepip",
        "lib2to3",
        "turtledemo",
        "site-packages",
        "lib-dynload",
        "__pycache__",
    }

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts
        return (
            None
            if skipped.intersection(parts) or any(part.startswith("config-") for part in parts)
            else entry
        )

    for name in (
        f"python{PYTHON}",
        "python3",
    ):  # Python in another program looks for its library beside python3
        archive.add(Path(program).resolve(), f"python/bin/{name}")
    archive.add(standard, f"python/lib/python{PYTHON}", filter=wanted)
    modules = sorted((standard / "lib-dynload").glob("*.so"))
    for binary in (library, *modules):
        with tempfile.NamedTemporaryFile() as stripped:
            # Debug information is three quarters of it.
            subprocess.run(["strip", "--strip-debug", "-o", stripped.name, binary], check=True)
            os.chmod(stripped.name, 0o755)
            archive.add(stripped.name, f"python/{binary.relative_to(prefix)}")
    needed = [str(path) for path in modules if "tkinter" not in path.name]
    printed = subprocess.run(["ldd", *needed], capture_output=True, text=True, check=True).stdout
    for name, path in sorted(set(re.findall(r"(\S+) => (/\S+)", printed))):
        if not _SYSTEM.match(name) and "libpython" not in name:
            archive.add(Path(path).resolve(), f"python/more/{name}")


def find_python() -> str:
    """Return a Python 3.12 that was built with libpython."""
    pyenv = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
            f"versions/{PYTHON}.*/bin/python{PYTHON}"
        )
    )
    for program in (os.environ.get("PYTHON312", ""), *map(str, pyenv), shutil.which(f"python{PYTHON}") or ""):
        if program and Path(program).exists():
            prefix = subprocess.run(
                [program, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True
            )
            if (
                prefix.returncode == 0
                and (Path(prefix.stdout.strip()) / "lib" / f"libpython{PYTHON}.so.1.0").exists()
            ):
                return program
    sys.exit(
        f"gpu-check: no Python {PYTHON} with libpython{PYTHON}.so here; "
        "set PYTHON312 to one built with --enable-shared"
    )


def _of(program: str, expression: str) -> str:
    words = [program, "-c", f"import sys; print({expression})"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def download_wheels() -> None:
    """Download the locked versions for Python 3.12 on Linux, where they are not there."""
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", line)[0] for line in lines if "==" in line)
    wanted = {name: f"{name.replace('-', '_')}-{locked[name]}-*.whl" for name in WHEELS}
    there = {path for pattern in wanted.values() for path in CARRIED.glob(pattern)}
    for path in set(CARRIED.glob("*.whl")) - there:
        path.unlink()
    missing = [
        f"{name}=={locked[name]}" for name, pattern in wanted.items() if not any(CARRIED.glob(pattern))
    ]
    if missing:
        platforms = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)] + ["manylinux2014_x86_64"]
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                ),
                *(
                    "--only-binary=:all:",
                    "--python-version",
                    PYTHON,
                    "--implementation",
                    "cp",
                    "--dest",
                    str(CARRIED),
                ),
                *(word for platform in platforms for word in ("--platform", platform)),
                *missing,
            ],
            check=True,
        )


def tree() -> list[str]:
    """Return the files that travel: what git tracks or would add, and the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [*files, *(str(path.relative_to(ROOT)) for path in CARRIED.iterdir())]


def rehearse() -> None:
    """Run the check from a bare copy, as on that machine, whose Python has numpy."""
    print("trying it here from a bare copy", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy, machine = Path(folder) / "tree", Path(folder) / "machine"
        for name in tree():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
        program = find_python()
        subprocess.run([program, "-m", "venv", str(machine)], check=True)
        pip = [str(machine / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "numpy"]
        subprocess.run(pip, check=True)
        environment = {"PATH": f"{machine}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "OUT": f"{folder}/out"}
        words = ["bash", "tests/gpu/check.sh"]
        done = subprocess.run(words, cwd=copy, env={**environment, "GPU_CHECK_SECONDS": "6"}, check=False)
        if done.returncode:
            sys.exit("gpu-check: the check fails here already")


def main() -> None:
    """Prepare, try, and say what to do."""
    prepare()
    size = sum((ROOT / name).stat().st_size for name in tree())
    if size > LIMIT:
        sys.exit(f"gpu-check: {size / 2**20:.1f} MiB would travel, of which {LIMIT / 2**20:g} are allowed")
    rehearse()
    print(
        f"\n{size / 2**20:.1f} MiB travel, of {LIMIT / 2**20:g}. "
        "On a machine with a GPU, from this tree and with .gpu-check:\n"
    )
    print("  command: bash tests/gpu/check.sh")
    print('  carry: [".gpu-check"]   timeout_s: 500\n')
    print(
        "It leaves summary.txt and results.tar.gz in $OUT. "
        "Unpack the latter here, and load its pages into a Prometheus:\n"
    )
    print("  GPU_CHECK_RESULTS=FOLDER make test ARGS=tests/gpu")


if __name__ == "__main__":
    main()
