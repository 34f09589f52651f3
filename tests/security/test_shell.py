"""`-P` values reach the steps as they are: no shell, no formatting takes them for its own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
# prints its arguments in place of a step
ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"


def values(trace: Path) -> dict[str, str]:
    return {
        "substitution": f"$(touch {trace})",
        "backticks": f"`touch {trace}`",
        "next command": f"; touch {trace}",
        "pipe": f"| touch {trace} &",
        "redirection": f"> {trace}",
        "single quote": f"'; touch {trace}; '",
        "double quote": f'"; touch {trace}; "',
        "newline": f"a\ntouch {trace}\n",
        "braces": "{config} {0} {set.__class__} {{x}}",
        "variable": "$HOME ${HOME} ~ * ?",
        "option": "--help",
        "dash": "-",
        "backslash": "\\",
        "percent": "%s %(x)s",
        "letters": "\u00e4\u6728\U0001f600",
        "empty": "",
    }


def project():
    from mlflow.projects._project_spec import load_project

    return load_project(str(ROOT))


def given(command: str) -> dict[str, str]:
    """Run an entry point's command with the step replaced by ECHO; return what it was given."""
    python, module, options = command.partition(" --")
    assert module, command
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(ECHO)} --{options}"
    assert python.startswith("python -m steps.")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    words = json.loads(done.stdout)
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("name", project()._entry_points)
def test_every_parameter_of_every_entry_point_arrives_verbatim(name, trace, tmp_path):
    entry = project().get_entry_point(name)
    hostile = " ".join(values(trace).values())
    parameters = dict.fromkeys(entry.parameters, hostile)
    command = entry.compute_command(parameters, str(tmp_path))
    found = given(command)
    assert set(found.values()) == {hostile}
    assert len(found) == len(entry.parameters)


@pytest.mark.parametrize("kind", values(Path("x")))
def test_each_kind_of_value_arrives_verbatim(kind, trace, tmp_path):
    value = values(trace)[kind]
    command = project().get_entry_point("train").compute_command({"set": value}, str(tmp_path))
    assert given(command)["--set"] == value


@pytest.mark.parametrize("key", ["$(touch x)", "a;touch x", "`id`"])
def test_the_name_of_an_undeclared_parameter_runs_nothing_either(key, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = project().get_entry_point("train").compute_command({key: "1"}, str(tmp_path))
    given(command)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("value", ["--help", "-h", "--set", "--config=x"])
def test_a_value_that_looks_like_an_option_is_a_value(value):
    from steps.main import main

    result = CliRunner().invoke(main, ["--set", value])
    assert result.exit_code == 2
    assert f"--set {value}" in result.output


@pytest.mark.slow
def test_mlflow_run_hands_a_hostile_value_on_and_runs_nothing(client, trace):
    value = f"name='$(touch {trace})' seed=`touch {trace}`; touch {trace} | {{config}}"
    command = [sys.executable, "-m", "mlflow", "run", str(ROOT), "-e", "prepare"]
    command += ["--env-manager", "local", "-P", f"set={value}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ)
    assert done.returncode == 1, done.stderr
    (run,) = client.search_runs(["0"])
    assert shlex.split(run.data.params["set"]) == [value]
    # the step itself split the text at blanks, and took the second word for an assignment
    assert run.data.tags["failure"].startswith("--set seed=`touch: not readable as YAML")
