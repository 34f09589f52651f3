"""The train command refuses what it cannot do."""

from click.testing import CliRunner


def test_launcher_with_several_processes_is_refused(monkeypatch):
    from steps.train import main

    monkeypatch.setenv("WORLD_SIZE", "4")
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "WORLD_SIZE=4: the train step is one process" in result.output
