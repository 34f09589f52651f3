"""An index is used only for the data that it was made from."""

import pytest

SMALL = " ".join(
    f"data.{split}.images=3 data.{split}.size=64" for split in ("train", "val", "test")
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path))
    return tmp_path


def _prepared(home, overrides=""):
    from steps.experiment import load
    from steps.prepared import prepare_into

    prepare_into(load(None, f"{SMALL} {overrides}"), home / "runs" / "earlier" / "index", jobs=1)


def _index(overrides, **settings):
    from steps.experiment import load
    from steps.prepared import prepared_index

    loaded = load(None, f"{SMALL} {overrides}")
    return prepared_index(loaded, **{"prepare_run": "earlier", "run_id": "mine", **settings})


def test_index_of_the_same_data_is_used(home):
    _prepared(home)
    assert _index("data.augment.hflip=0.1 train.epochs=9") == home / "runs" / "earlier" / "index"


def test_index_of_other_data_is_refused(home):
    from steps.prepared import PreparedError

    _prepared(home)
    with pytest.raises(PreparedError, match="'earlier': it prepared other data"):
        _index("data.train.seed=77")


def test_inherited_index_of_other_data_is_made_anew(home):
    _prepared(home)
    index = _index("data.train.seed=77", is_inherited=True)
    assert index == home / "runs" / "mine" / "index"
    assert (index / "train.arrow").exists()


def test_what_is_prepared_on_the_spot_takes_all_cpus(home, monkeypatch):
    from steps import prepared

    taken = []
    monkeypatch.setattr(prepared, "prepare_into", lambda *_, jobs: taken.append(jobs))
    _index("data.train.seed=77", is_inherited=True, prepare_run="")
    assert taken == [0]
