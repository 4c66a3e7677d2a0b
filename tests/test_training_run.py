"""Training runs: what is kept, logged, resumed and published; settings; the curve and the card."""

import json
import math
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from retrieval.errors import ConfigError, DataError, IndexLockedError
from retrieval.training.card import model_card
from retrieval.training.curve import loss_curve
from retrieval.training.examples import Example
from retrieval.training.run import TrainingReport, TrainingSettings, examples_hash, identity_of, open_run

IDENTITY = {"kind": "bi-encoder", "data": "abc"}


def model_of(step):
    """Saves something that looks like a model of a step."""

    def save(folder):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"step": step}))
        (folder / "model.safetensors").touch(mode=0o600)  # as safetensors writes

    return save


def checkpoint(run, step, *, whole=True):
    folder = run.checkpoints / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"")
    if whole:
        (folder / "trainer_state.json").write_text("{}")


def step_of(folder):
    return json.loads((folder / "config.json").read_text())["step"]


def trained(run, steps, figures=None):
    """Log steps and consider every second one."""
    for step in range(1, steps + 1):
        run.record(step, loss=1 / step, learning_rate=0.1, tokens=10, seconds=0.5)
        if step % 2 == 0:
            run.consider(step, model_of(step), None if figures is None else lambda _: {"f": next(figures), "g": 1.0})


def test_last_model_is_published_without_figures(tmp_path):
    with open_run(tmp_path / "deep" / "out", identity=IDENTITY) as run:
        trained(run, 4)
        report = run.report({"cut": 3})
        run.publish("the card")
    out = tmp_path / "deep" / "out"
    assert step_of(out) == 4
    assert (out / "README.md").read_text() == "the card"
    assert len((out / "log.jsonl").read_text().splitlines()) == 4
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert report == TrainingReport(
        out=out, steps=4, best_step=4, metrics={}, loss=0.25, seconds=2.0, tokens=40, resumed_from=0, notices={"cut": 3}
    )


def test_best_model_is_published(tmp_path):
    with open_run(tmp_path / "out", identity=IDENTITY) as run:
        trained(run, 6, iter([0.2, 0.5, 0.5]))
        assert [path.name for path in run.folder.glob("best-*")] == ["best-4"]  # the first of equals
        assert not list(run.folder.glob("candidate-*"))
        run.publish("")
    assert step_of(tmp_path / "out") == 4


@pytest.mark.parametrize("figures", [{}, {"f": math.nan}])
def test_figures_that_cannot_be_compared(tmp_path, figures):
    with (
        pytest.raises(ConfigError, match="the evaluation at step 2 gave"),
        open_run(tmp_path / "out", identity=IDENTITY) as run,
    ):
        run.consider(2, model_of(2), lambda _: figures)


def test_nothing_to_publish(tmp_path):
    with (
        pytest.raises(DataError, match="holds no model to publish"),
        open_run(tmp_path / "out", identity=IDENTITY) as run,
    ):
        run.publish("")


def test_run_goes_on_from_its_last_whole_checkpoint(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path / "out", identity=IDENTITY) as run:
        trained(run, 5, iter([0.5, 0.2]))
        checkpoint(run, 2)
        checkpoint(run, 4)
        checkpoint(run, 10, whole=False)
        raise KeyboardInterrupt
    assert not (tmp_path / "out").exists()
    with open_run(tmp_path / "out", identity=IDENTITY) as run:
        assert run.resumed_from == 4
        assert run.last_checkpoint() == run.checkpoints / "checkpoint-4"
        assert "taken up after step 4" in caplog.text
        assert [record["step"] for record in run.records()] == [1, 2, 2, 3, 4, 4]  # not step 5
        assert run.best() == {"step": 2, "metrics": {"f": 0.5, "g": 1.0}}
        assert run.was_considered(4)
        assert not run.was_considered(3)
        run.publish("")
    assert step_of(tmp_path / "out") == 2


def test_a_candidate_left_behind_is_replaced(tmp_path):
    with open_run(tmp_path / "out", identity=IDENTITY) as run:
        model_of(99)(run.folder / "candidate-2")  # killed while it was evaluated
        model_of(98)(run.folder / "best-2")  # killed before best.json was written
        run.consider(2, model_of(2), None)
        run.publish("")
    assert step_of(tmp_path / "out") == 2


def test_what_a_killed_process_wrote_in_part_is_not_read(tmp_path):
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path / "out", identity=IDENTITY) as run:
        trained(run, 4)
        checkpoint(run, 2)
        checkpoint(run, 4)
        (run.checkpoints / "checkpoint-4" / "trainer_state.json").write_text('{"epoch": 1')
        with (run.folder / "log.jsonl").open("a") as stream:
            stream.write('{"step": 5, "lo')
        raise KeyboardInterrupt
    with open_run(tmp_path / "out", identity=IDENTITY) as run:
        assert run.resumed_from == 2
        assert [record["step"] for record in run.records()] == [1, 2]


@pytest.mark.parametrize("moment", ["between the renames", "before the folder is removed", "while it is removed"])
def test_a_process_killed_while_it_publishes(tmp_path, monkeypatch, moment):
    out = tmp_path / "out"
    model_of(0)(out)
    renames, really = [], Path.rename

    def rename(self, target):
        renames.append(self)
        if moment == "between the renames" and len(renames) == 2:
            raise KeyboardInterrupt
        return really(self, target)

    def rmtree(folder, **_):
        if moment == "while it is removed" and folder.name == ".out.training":
            (folder / "best.json").unlink()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_run(out, identity=IDENTITY, overwrite=True) as run:
        trained(run, 2, iter([0.5]))
        checkpoint(run, 2)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            patch.setattr(shutil, "rmtree", rmtree)
            if moment == "before the folder is removed":
                patch.setattr(Path, "unlink", rmtree)
            run.publish("")
    for identity in (IDENTITY, {**IDENTITY, "data": "def"}):  # repeated, or another one in its place
        again = tmp_path / identity["data"]
        shutil.copytree(tmp_path, again, ignore=shutil.ignore_patterns("abc"))
        with open_run(again / "out", identity=identity, overwrite=True) as run:
            assert step_of(again / "out") == (0 if moment == "between the renames" else 2)
            if not run.resumed_from:
                trained(run, 2, iter([0.5]))
            assert run.was_considered(2)
            run.publish("")
        assert step_of(again / "out") == 2
        assert sorted(path.name for path in again.iterdir()) == ["out"]


def test_a_model_is_readable_by_all_who_may_read_its_folder(tmp_path):
    with open_run(tmp_path / "out", identity=IDENTITY) as run:
        trained(run, 2)
        run.publish("from caf\udce9.jsonl")  # a name that is not UTF-8
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1
    assert (tmp_path / "out" / "README.md").read_text() == "from caf\\udce9.jsonl"


def test_run_without_checkpoint_leaves_nothing(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path / "out", identity=IDENTITY) as run:
        run.record(1, loss=1.0)
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with open_run(tmp_path / "out", identity={**IDENTITY, "data": "def"}) as run:
        assert run.records() == []
    assert not caplog.text


def test_another_identity_discards_the_run(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path / "out", identity=IDENTITY) as run:
        trained(run, 2)
        checkpoint(run, 2)
        raise KeyboardInterrupt
    with open_run(tmp_path / "out", identity={**IDENTITY, "data": "def"}) as run:
        assert (run.resumed_from, run.records(), run.best()) == (0, [], None)
    assert "other settings or data and is discarded" in caplog.text


def test_one_process_at_a_time(tmp_path):
    with (
        open_run(tmp_path / "out", identity=IDENTITY),
        pytest.raises(IndexLockedError, match="is writing to"),
        open_run(tmp_path / "out", identity=IDENTITY),
    ):
        pass


def test_what_is_there_is_kept_unless_it_is_a_model_to_overwrite(tmp_path):
    out = tmp_path / "out"
    model_of(0)(out)
    with pytest.raises(ConfigError, match="exists; give another folder, or overwrite it"), open_run(out, identity={}):
        pass
    with open_run(out, identity=IDENTITY, overwrite=True) as run:
        trained(run, 2)
        assert step_of(out) == 0  # until the end
        run.publish("")
    assert step_of(out) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.json").write_text("{}")  # many things have one
    for name in ("photos", "photos/a.jpg", "project"):
        with pytest.raises(ConfigError, match="is not"), open_run(tmp_path / name, identity={}, overwrite=True):
            pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schedule": "steps"}, "unknown schedule 'steps'; expected one of linear"),
        ({"precision": "int8"}, "unknown precision"),
        ({"max_steps": 0}, "max_steps is 0; expected at least 1"),
        ({"evaluate_every": -1}, "evaluate_every is -1"),
        ({"epochs": 0}, "epochs is 0; expected a number above 0"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1; expected 0 or more"),
        ({"warmup": 1.0}, "warmup is 1.0; expected a share"),
        ({"dropout": math.nan}, "dropout is nan"),
        ({"seed": -1}, "seed is -1; expected 0 to"),
        ({"seed": 2**32}, "seed is 4294967296; expected 0 to"),
        ({"device": "\udcff"}, "device is .* not UTF-8"),
    ],
)
def test_settings_that_cannot_be_used(given, said):
    with pytest.raises(ConfigError, match=said):
        TrainingSettings(**given)


def test_steps():
    settings = TrainingSettings(epochs=1.5, batch_size=4)
    assert [settings.steps(rows) for rows in (1, 3, 4, 10)] == [2, 2, 2, 4]
    assert [settings.interval(rows) for rows in (1, 10)] == [1, 3]
    assert TrainingSettings(max_steps=7).steps(10**6) == 7
    assert TrainingSettings(evaluate_every=50).interval(10**6) == 50


def test_identity_follows_settings_and_every_field_of_the_examples():
    def identity(**more):
        return json.dumps(identity_of("bi-encoder", TrainingSettings(**more), model="m", data="d", pooling=None))

    assert identity() == identity()
    assert identity() != identity(seed=1)
    whole = Example(query="q", positives=("p",), negatives=("n",), positive_scores=(1.0,), negative_scores=(0.5,))
    others = [
        Example(query="r", positives=("p",), negatives=("n",), positive_scores=(1.0,), negative_scores=(0.5,)),
        Example(query="q", positives=("p",), negatives=("n",), positive_scores=(1.0,), negative_scores=(0.25,)),
        Example(query="q", positives=("p", "n"), positive_scores=(1.0, 0.5)),
    ]
    assert examples_hash([whole]) == examples_hash([whole])
    assert len({examples_hash([one]) for one in [whole, *others]} | {examples_hash([whole, whole])}) == 5


def test_curve_by_hand():
    records = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 1.0},
        {"step": 2, "metrics": {"ndcg@10 < 1": 0.25}},
        {"step": 4, "loss": 2.0},
        {"step": 4, "metrics": {"ndcg@10 < 1": 0.75}},
    ]
    picture = ElementTree.fromstring(loss_curve(records))
    line = picture.find("{*}polyline")
    # 640 x 320 pixels with margins of 48: steps 1, 2, 4 of 4 at 184, 320, 592; losses 3, 1, 2 at 48, 272, 160
    assert line.attrib["points"] == "184.0,48.0 320.0,272.0 592.0,160.0"
    dots = [(dot.attrib["cx"], dot.attrib["cy"]) for dot in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert dots == [("320.0", "272.0"), ("592.0", "48.0")]
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["step (of 4)", "loss", "3", "1", "ndcg@10 < 1", "0.75", "0.25"]


def test_curve_of_little_and_of_much():
    ElementTree.fromstring(loss_curve([]))
    one = ElementTree.fromstring(loss_curve([{"step": 1, "loss": 2.0}]))
    assert one.find("{*}polyline").attrib["points"] == "592.0,160.0"
    much = ElementTree.fromstring(loss_curve([{"step": step, "loss": 1 / step} for step in range(1, 1001)]))
    assert len(much.find("{*}polyline").attrib["points"].split()) == 100


def test_card_says_where_a_model_comes_from(tmp_path):
    report = TrainingReport(
        out=tmp_path / "mine",
        steps=4,
        best_step=2,
        metrics={"f": 0.5},
        loss=0.25,
        seconds=2.0,
        tokens=40,
        resumed_from=0,
    )
    card = model_card(
        report,
        kind="bi-encoder",
        start="base",
        start_sha256="1234",
        data_sha256="abcd",
        examples=17,
        settings=TrainingSettings(seed=5),
        sources={"pairs | mined": "x.jsonl"},
        history=[{"step": 2, "metrics": {"f": 0.5}}, {"step": 4, "loss": 1.0}, {"step": 4, "metrics": {"f": 0.25}}],
    )
    for line in (
        "# mine",
        "| examples | 17 |",
        "| SHA-256 of the examples | abcd |",
        "| pairs \\| mined | x.jsonl |",
        "| its SHA-256 | 1234 |",
        "| 2 (kept) | 0.5000 |",
        "| 4 | 0.2500 |",
        "| seed | 5 |",
    ):
        assert line in card.splitlines(), line
