"""A run says which code it came from, changed or not."""

import subprocess

import pytest

from steps.provenance import environment_text, git_state


@pytest.fixture
def project(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, "-C", str(tmp_path), *arguments], check=True)

    git("init", "--quiet")
    (tmp_path / "MLproject").write_text("name: one\n")
    (tmp_path / ".gitignore").write_text("mlflow.db\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return tmp_path


def test_clean_code_is_its_commit(project):
    (project / "mlflow.db").write_text("ignored")
    state = git_state(project)
    assert len(state.commit) == 40
    assert not state.is_dirty


def test_changes_and_untracked_files_are_shown(project):
    (project / "MLproject").write_text("name: two\n")
    (project / "new.py").write_text("")
    state = git_state(project)
    assert state.is_dirty
    assert "-name: one\n+name: two" in state.diff
    assert "new.py" in state.diff


def test_code_that_another_repository_does_not_keep_has_no_commit(project):
    inner = project / "build"
    inner.mkdir()
    (inner / "MLproject").write_text("")
    assert git_state(inner) is None


def test_environment_holds_no_other_variables(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    text = environment_text(None)
    assert "do not tell" not in text
    assert "PYTHONHASHSEED=7" in text
    assert "torch==" in text
