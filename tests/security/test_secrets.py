"""Secrets of the environment stay out of params, tags, artifacts, names and messages."""

import json
import logging
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from steps.experiment import ConfigError, load
from steps.options import step_command
from steps.runs import open_run
from steps.secrets import is_secret_name, without_secrets
from steps.spool import Spool, SpoolInfo

TOKEN = "tok3n-Zx81-never-to-be-seen"
PASSWORD = "hunter2-never-to-be-seen"
VARIABLES = {
    "HF_TOKEN": TOKEN,
    "AWS_SECRET_ACCESS_KEY": f"aws-{TOKEN}",
    "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    "WANDB_API_KEY": f"wandb-{TOKEN}",
    "DATABASE_URL": f"postgresql://ci:{PASSWORD}@127.0.0.1/db",
}
REMOTE = f"https://gitlab-ci-token:{TOKEN}@gitlab.example.com/group/project.git"


@pytest.fixture
def secrets(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def everything(client, run_id: str, folder: Path) -> str:
    """All that the store tells of a run: tags, params, inputs, names and texts of artifacts."""
    run = client.get_run(run_id)
    texts = [json.dumps(run.to_dictionary())]
    for path in _artifacts(client, run_id):
        local = Path(client.download_artifacts(run_id, path, str(folder)))
        texts += [path, local.read_bytes().decode("utf-8", errors="replace")]
    return "\n".join(texts)


def _artifacts(client, run_id, path=None):
    for info in client.list_artifacts(run_id, path):
        if info.is_dir:
            yield from _artifacts(client, run_id, info.path)
        else:
            yield info.path


def test_what_a_run_says_by_itself_holds_no_secret(client, secrets, tmp_path):
    with open_run("train", load(None)) as run:
        run.log.metrics({"train/loss": 1.0}, step=1)
    found = everything(client, run.run_id, tmp_path)
    assert "environment.txt" in found
    for value in (TOKEN, PASSWORD):
        assert value not in found


def test_what_a_step_says_on_a_run_holds_no_secret(client, secrets, tmp_path):
    with open_run("train", None, run_name=f"my {TOKEN}", tags={"own": TOKEN}) as run:
        run.tag("address", REMOTE)
        run.params({"source": REMOTE, "key": TOKEN})
        run.log.event("skip", f"because of {TOKEN}", step=1)
        run.content(f"see {REMOTE}", "note.txt")
        run.json({"password": PASSWORD}, "note.json")
        run.dataset("d", digest="0" * 12, context="train", source=REMOTE)
        run.describe(f"{TOKEN} is the verdict", {"row": REMOTE}, more=PASSWORD)
    found = everything(client, run.run_id, tmp_path)
    assert TOKEN not in found
    assert PASSWORD not in found
    assert "https://gitlab.example.com/group/project.git" in found
    assert "because of ***" in found


def test_the_traceback_of_a_bug_holds_no_secret(client, secrets, tmp_path):
    with pytest.raises(RuntimeError), open_run("train", None) as run:
        raise RuntimeError(f"GET {REMOTE} failed with Bearer {TOKEN}")
    found = everything(client, run.run_id, tmp_path)
    assert "traceback.txt" in found
    assert "failed with Bearer ***" in found
    assert TOKEN not in found


def test_a_token_in_the_address_of_the_repository_is_taken_off_the_run(
    client, secrets, monkeypatch, tmp_path
):
    """`mlflow run https://USER:TOKEN@HOST/PROJECT` has MLflow itself record that address."""
    tags = {"mlflow.source.name": REMOTE, "mlflow.source.git.repoURL": REMOTE}
    own = client.create_run("0", tags=tags).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", own)
    with open_run("train", None) as run:
        assert run.run_id == own
    assert TOKEN not in everything(client, own, tmp_path)


def test_the_address_of_the_store_is_told_without_its_password(client, monkeypatch, tmp_path):
    """The spool, the artifact of it, and the error about a run that is not there."""
    from steps.resuming import ResumeError, find_start

    uri = f"http://ci:{PASSWORD}@127.0.0.1:9"
    SpoolInfo("0" * 32, without_secrets(uri), "train").write(tmp_path / "spool")
    assert PASSWORD not in (tmp_path / "spool" / "meta.json").read_text()
    monkeypatch.setattr(type(client), "tracking_uri", uri)
    with pytest.raises(ResumeError, match=r"no such run in http://127\.0\.0\.1:9;") as caught:
        find_start(None, "", resume="f" * 32, client=client)
    assert PASSWORD not in str(caught.value)


def test_a_store_that_does_not_answer_is_told_without_its_password(monkeypatch, tmp_path, caplog):
    """MLflow's own error holds the whole address."""
    from steps.main import main

    monkeypatch.setenv("SIGHTFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ci:{PASSWORD}@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert "http://127.0.0.1:9" in result.output
    assert PASSWORD not in result.output + caplog.text


def test_the_reason_why_a_step_never_began_holds_no_secret(client, secrets, monkeypatch, tmp_path):
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)

    @step_command()
    def main():
        raise ConfigError(f"{REMOTE} cannot be read with {TOKEN}")

    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "with ***" in result.output
    assert TOKEN not in result.output
    assert "with ***" in client.get_run(run_id).data.tags["failure"]
    assert TOKEN not in everything(client, run_id, tmp_path)


@pytest.mark.parametrize("text", ["${HF_TOKEN}", "a-${AWS_SECRET_ACCESS_KEY:-none}"])
def test_a_configuration_may_not_ask_for_a_secret(secrets, tmp_path, text):
    path = tmp_path / "e.yaml"
    path.write_text(f"task: detection\nname: {text}\n")
    with pytest.raises(ConfigError, match="by its name it is a secret") as caught:
        load(path)
    assert TOKEN not in str(caught.value)


def test_the_configuration_of_a_run_cannot_ask_for_variables_of_this_machine(
    client, secrets, monkeypatch, tmp_path
):
    from steps.registering import experiment_of_run

    monkeypatch.setenv("INNOCENT", "private")
    run_id = client.create_run("0").info.run_id
    text = load(None).text.replace("name: quickstart", "name: ${INNOCENT}")
    assert "${INNOCENT}" in text
    client.log_text(run_id, text, "config.yaml")
    with pytest.raises(ConfigError, match="INNOCENT is not set"):
        experiment_of_run(run_id, "")


def test_an_address_in_a_configuration_loses_its_password(client, tmp_path):
    with open_run("train", load(None, f"register.description={REMOTE}")) as run:
        pass
    assert TOKEN not in everything(client, run.run_id, tmp_path)


def test_the_environment_is_told_by_a_list_of_names():
    from steps.provenance import _TOLD_VARIABLES, environment_text

    assert not any(map(is_secret_name, _TOLD_VARIABLES))
    text = environment_text(None)
    told = [line.partition("=")[0] for line in text.partition("\n\n")[0].splitlines()]
    assert not set(told) & (set(os.environ) - set(_TOLD_VARIABLES))


def test_credentials_go_to_the_store_that_they_are_for_only(store, monkeypatch, tmp_path, caplog):
    """Whoever hands over a spool folder could name a server of his own in it."""
    from steps.sync import main

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    folder = tmp_path / "given" / ("a" * 32)
    SpoolInfo("a" * 32, "http://127.0.0.1:9", "train").write(folder)
    spool = Spool(folder)
    spool.append({"t": 1, "tags": {"x": "y"}})
    spool.close()
    with caplog.at_level(logging.DEBUG):
        result = CliRunner().invoke(main, ["--folder", str(tmp_path / "given")])
    assert result.exit_code == 1
    assert "the credentials in the environment are for sqlite" in result.output
    assert "HTTPConnection" not in caplog.text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "PG_PASSWORD_2", "api_key")),
        *((name, True) for name in ("CI_JOB_JWT", "GOOGLE_APPLICATION_CREDENTIALS", "DB_PASS")),
        *((name, False) for name in ("TOKENIZERS_PARALLELISM", "KEYBOARD", "PWD", "DATA", "HOME")),
    ],
)
def test_secrets_are_known_by_their_names(name, is_secret):
    assert is_secret_name(name) == is_secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://h/db"),
        ("http://token@h:5000/x?a=1", "http://h:5000/x?a=1"),
        ("https://u:p%40s:s@h", "https://h"),
        ("a http://u:p@h, b ssh://git@h/x", "a http://h, b ssh://h/x"),
        ("mail a@b.de or see http://h/a@b", "mail a@b.de or see http://h/a@b"),
        ("GET /x?token=abc&y=1", "GET /x?token=***&y=1"),
        ("s3://h/x?X-Amz-Signature=abc", "s3://h/x?X-Amz-Signature=***"),
        ("secret-1 and short", "*** and short"),
        ("longer secret-1-and-more", "longer ***"),
    ],
)
def test_what_is_masked(text, shown):
    environ = {"A_TOKEN": "secret-1", "B_TOKEN": "short", "C_KEY": "", "D": "longer text"}
    environ["E_TOKEN"] = "secret-1-and-more"
    assert without_secrets(text, environ) == shown
