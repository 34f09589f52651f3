from __future__ import annotations

import multiprocessing

import pandas as pd
import pytest

from steps.gate import Check, GateReport
from steps.promotion import promote, roll_back
from steps.registry import (
    RegistryError,
    add_note,
    aliases_of,
    model_id_of,
    registry_lock,
    version_of,
)
from steps.scores import evaluations_of, scored_run
from steps.versions import Headline, describe_version, ensure_version
from tests.steps.model_store import log_scored, sqlite_store

PASSED = GateReport((Check("mAP", 0.6, 0.5, True, "mAP is 0.6, at least 0.5"),))
FAILED = GateReport((Check("mAP", 0.4, 0.5, False, "mAP is 0.4, below 0.5"),))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with sqlite_store(tmp_path_factory.mktemp("store")) as client:
        yield client


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").replace("]", "")


def _version(client, name, *, score=0.6, report=PASSED):
    run_id, model_id = log_scored(client, {"mAP": score})
    version, _ = ensure_version(client, name, model_id=model_id)
    describe_version(
        client,
        version,
        scored=scored_run(client, run_id),
        headline=Headline("mAP", score),
        report=report,
        text="",
    )
    return str(version.version)


def test_promoting_keeps_the_old_champion_as_previous(client, name):
    first, second = _version(client, name), _version(client, name)
    promote(client, name, version=first, reason="first", force=False)
    done = promote(client, name, version=second, reason="better", force=False)
    assert aliases_of(client, name) == {"champion": second, "previous": first}
    assert (done.champion, done.replaced, done.changed) == (second, first, True)


def test_who_when_why_and_evidence_go_into_the_description(client, name):
    first = _version(client, name, score=0.61234)
    promote(client, name, version=first, reason="beats the\nold one", force=False)
    text = client.get_model_version(name, first).description
    assert text.startswith("mAP 0.612, update 300, cats-test")
    note = next(line for line in text.splitlines() if line.startswith("- promoted champion"))
    assert "UTC" in note
    assert "@" in note
    assert "beats the old one" in note
    assert "score mAP 0.612, on cats-test 0123456789ab" in note


def test_both_versions_are_compared_item_by_item_where_both_were_scored(client, name, tmp_path):
    runs = []
    for qualities in ([0.1, 0.5, 0.5], [0.9, 0.6, 0.5]):
        version = _version(client, name)
        model_id = model_id_of(client.get_model_version(name, version))
        place = [client.get_logged_model(model_id).experiment_id]
        (scored,) = evaluations_of(client, model_id, experiment_ids=place)
        path = tmp_path / "per_item.parquet"
        pd.DataFrame({"image_id": ["a", "b", "c"], "quality": qualities}).to_parquet(path)
        client.log_artifact(scored.run_id, str(path))
        promote(client, name, version=version, reason="", force=False)
        runs.append(scored.run_id)
    text = client.get_model_version(name, "2").description
    assert "better on 2, worse on 0 of 3 items" in text
    assert f"evaluate runs {runs[1]} and {runs[0]}" in text


def test_a_version_has_at_most_four_short_tags(client, name):
    tags = client.get_model_version(name, _version(client, name)).tags
    assert set(tags) == {"gate", "score", "data", "run"}
    assert max(len(value) for value in tags.values()) <= 28


def test_promoting_the_champion_again_changes_nothing(client, name):
    first = _version(client, name)
    promote(client, name, version=first, reason="", force=False)
    before = client.get_model_version(name, first).description
    done = promote(client, name, version=first, reason="", force=False)
    assert not done.changed
    assert "nothing to do" in done.summary
    assert client.get_model_version(name, first).description == before
    assert aliases_of(client, name) == {"champion": first}


@pytest.mark.parametrize(
    ("force", "reason", "message"),
    [(False, "because", "did not pass its gate"), (True, " ", "say why with `--reason TEXT`")],
    ids=["not forced", "no reason"],
)
def test_a_version_that_did_not_pass_is_refused(client, name, force, reason, message):
    failed = _version(client, name, report=FAILED)
    with pytest.raises(RegistryError, match=message):
        promote(client, name, version=failed, reason=reason, force=force)
    assert aliases_of(client, name) == {}


def test_force_with_a_reason_promotes_what_did_not_pass(client, name):
    failed = _version(client, name, report=FAILED)
    promote(client, name, version=failed, reason="demo only", force=True)
    assert aliases_of(client, name) == {"champion": failed}
    assert (
        "(forced: gate not passed): demo only" in client.get_model_version(name, failed).description
    )


def test_rollback_swaps_champion_and_previous(client, name):
    first, second = _version(client, name), _version(client, name)
    promote(client, name, version=first, reason="", force=False)
    promote(client, name, version=second, reason="", force=False)
    done = roll_back(client, name, reason="too slow")
    assert aliases_of(client, name) == {"champion": first, "previous": second}
    assert done.champion == first
    assert "too slow" in client.get_model_version(name, first).description
    assert "no longer champion" in client.get_model_version(name, second).description


def test_rollback_without_an_earlier_champion_says_so(client, name):
    first = _version(client, name)
    promote(client, name, version=first, reason="", force=False)
    with pytest.raises(RegistryError, match=rf"no earlier champion .*champion: {first}, previous"):
        roll_back(client, name, reason="")


def test_unknown_names_are_told_with_those_there_are(client, name):
    first = _version(client, name)
    with pytest.raises(RegistryError, match=f"registered are: .*{name}"):
        promote(client, "no-such-model", version="1", reason="", force=False)
    with pytest.raises(RegistryError, match=rf"there is no version 77; there are: {first}"):
        promote(client, name, version="77", reason="", force=False)
    with pytest.raises(RegistryError, match=r"no version has the alias 'candidate' \(no aliases\)"):
        version_of(client, name, "candidate")


class _AnotherPromoter:
    """A registry in which somebody else moves each alias right after us."""

    def __init__(self, client, version):
        self.client, self.version = client, version

    def __getattr__(self, name):
        return getattr(self.client, name)

    def set_registered_model_alias(self, name, alias, version):
        self.client.set_registered_model_alias(name, alias, version)
        self.client.set_registered_model_alias(name, alias, self.version)


def test_an_alias_that_somebody_else_moved_meanwhile_is_noticed(client, name):
    first, second = _version(client, name), _version(client, name)
    other = _AnotherPromoter(client, second)
    with pytest.raises(RegistryError, match=f"set to version {first} but points to {second}"):
        promote(other, name, version=first, reason="", force=False)


def test_the_history_of_a_version_stays_below_what_the_registry_holds(client, name):
    version = client.get_model_version(name, _version(client, name))
    for number in range(12):
        add_note(client, version, f"note {number} " + "x" * 700)
    text = client.get_model_version(name, version.version).description
    assert len(text) <= 5000
    assert text.startswith("mAP 0.600")
    assert "note 11" in text
    assert "note 1 " not in text


def _add_one(folder, times):
    for _ in range(times):
        with registry_lock(folder):
            path = folder / "count"
            path.write_text(str(int(path.read_text()) + 1))


def test_the_lock_keeps_processes_apart(tmp_path):
    (tmp_path / "count").write_text("0")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_one, args=(tmp_path, 50)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (tmp_path / "count").read_text() == "150"
