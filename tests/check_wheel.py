"""Build the wheel and try it where nothing of the repository is in reach.

    .venv/bin/python tests/check_wheel.py

The interpreter must have the dependencies installed: the fresh environment borrows them.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "demo", "*.egg-info", "__pycache__")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
WEIGHTS = ROOT / "data" / "models" / "minilm-reranker"
DOCUMENTS = {
    "storm": "Low air pressure and strong onshore winds push the level of the sea up: a storm surge.",
    "spring": "When sun and moon pull along one line, high waters are highest; these are the spring tides.",
    "copper": "Copper conducts heat better than iron does.",
}


def run(*command, cwd):
    """Run a command and return what it printed; show everything and stop if it fails."""
    ran = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"failed in {cwd}: {' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def expect(what, given, expected):
    """Stop with both sides shown unless they are equal."""
    if given != expected:
        sys.exit(f"{what}:\n  is       {given}\n  expected {expected}")
    print(f"ok: {what}")


def build_wheel(folder):
    """Build from a clean copy, so that neither build/ nor stale files of the checkout get in."""
    copy = folder / "source"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, copy, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def source_modules():
    """Names in the wheel of all modules, by the mapping in pyproject.toml."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    names = [package.replace(".", "/") for package in setuptools["packages"]]
    folders = [setuptools["package-dir"].get(package) for package in setuptools["packages"]]
    return sorted(
        f"{name}/{path.name}"
        for name, folder in zip(names, folders, strict=True)
        for path in (ROOT / (folder or name)).glob("*.py")
    )


def dist_info(wheel):
    """Name of the folder of metadata that belongs to the wheel."""
    return f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"


def check_contents(wheel):
    """The wheel holds every module once, and nothing beside the package."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = sorted({name.split("/")[0] for name in names})
    expect("top level of the wheel", tops, ["retrieval", dist_info(wheel)])
    expect("modules of the wheel", sorted(name for name in names if name.endswith(".py")), source_modules())
    expect("py.typed in the wheel", "retrieval/py.typed" in names, True)
    check_weights(wheel)


def check_weights(wheel):
    """The default reranker is in the wheel with equal bytes, if the checkout has it."""
    here = {path.name: path.read_bytes() for path in WEIGHTS.glob("[!.]*")}
    prefix = f"retrieval/weights/{WEIGHTS.name}/"
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name.removeprefix(prefix): archive.read(name) for name in archive.namelist() if name.startswith(prefix)
        }
    expect("files of the default reranker in the wheel", sorted(packed), sorted(here))
    expect("files of it with other bytes", [name for name in here if packed[name] != here[name]], [])


def install(wheel, folder):
    """Install the wheel alone into a fresh environment that borrows our dependencies; return its bin."""
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(scripts / "python", "-c", where, cwd=folder).strip())
    before = set(site.iterdir())
    run(scripts / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    added = sorted(path.name for path in set(site.iterdir()) - before)
    expect("what the wheel adds to site-packages", added, ["retrieval", dist_info(wheel)])
    # After the install, and as a path only: the editable install recorded there must not take part.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return scripts


def check_use(scripts, folder):
    """The command and the imports work in an empty folder and beside packages with our folders' names."""
    empty = folder / "empty"
    empty.mkdir()
    expect(
        "retrieve --help in an empty folder",
        "build-index" in run(scripts / "retrieve", "--help", cwd=empty),
        True,
    )
    crowded = folder / "crowded"
    for name in ("index", "eval", "training"):
        (crowded / name).mkdir(parents=True)
        (crowded / name / "__init__.py").write_text("OWNER = 'user'\n", encoding="utf-8")
    code = (
        "import index, eval, training, retrieval.index, retrieval.training, retrieval.eval\n"
        "print(index.OWNER, eval.OWNER, training.OWNER, retrieval.__file__)"
    )
    *owners, origin = run(scripts / "python", "-c", code, cwd=crowded).split()
    expect("owners of index, eval and training", owners, ["user"] * 3)
    expect("retrieval comes from the wheel", Path(origin).is_relative_to(scripts.parent), True)
    expect("retrieve --help beside them", "build-index" in run(scripts / "retrieve", "--help", cwd=crowded), True)


def check_search(scripts, folder):
    """Offline, in a folder with nothing but documents: build an index and ask it, with the reranker if there is one."""
    home = folder / "home"
    home.mkdir()
    lines = (json.dumps({"_id": name, "text": text}) + "\n" for name, text in DOCUMENTS.items())
    (home / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")
    run(scripts / "retrieve", "build-index", "corpus.jsonl", "my-index", cwd=home)
    question = "why does the sea rise during a storm?"
    answer = json.loads(run(scripts / "retrieve", "query", "my-index", question, "--json", cwd=home))
    expect("hits of a query in an empty folder, offline", len(answer["hits"]), len(DOCUMENTS))
    reranked = [hit["rerank_score"] is not None for hit in answer["hits"]]
    expect("which of them are re-ordered", reranked, [WEIGHTS.exists()] * len(DOCUMENTS))
    expect("the best of them", answer["hits"][0]["doc_id"], "storm")


def main():
    """Run all checks; the first that fails ends the script with status 1."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        wheel = build_wheel(folder)
        check_contents(wheel)
        scripts = install(wheel, folder / "venv")
        check_use(scripts, folder)
        check_search(scripts, folder)


if __name__ == "__main__":
    main()
