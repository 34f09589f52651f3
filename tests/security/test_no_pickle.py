"""No file can run code: the tree holds no call that would let it, and hostile ones are refused."""

import ast
import hashlib
import json
import struct
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from engine.checkpoint import CheckpointError, CheckpointStore
from engine.foreign import read_foreign
from engine.weights import WeightsError, read_weights
from models.weights import WeightsError as ModelWeightsError
from models.weights import read_state_dict

ROOT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "engine", "models", "readers", "steps", "tasks")
# calls that run what a file, a text or a name says, by the end of their dotted name
FORBIDDEN = {
    *("pickle.load", "pickle.loads", "Unpickler", "cloudpickle.load", "dill.load", "joblib.load"),
    *("marshal.load", "marshal.loads", "shelve.open", "pandas.read_pickle", "pd.read_pickle"),
    *("eval", "exec", "os.system", "os.popen", "subprocess.getoutput", "torch.hub.load"),
    *("torch.jit.load", "yaml.full_load", "yaml.unsafe_load", "yaml.full_load_all"),
    *("extractall", "unpack_archive", "tempfile.mktemp", "pyfunc.load_model"),
}
# standard parsers that expand entities; readers/xml_files.py is ours
FORBIDDEN_IMPORTS = ("xml.etree", "xml.dom", "xml.sax", "lxml", "tarfile", "dill", "shelve")
SAFE_LOADERS = {"_Loader", "_PlainLoader"}

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")


def modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text("utf-8"))


def is_forbidden(name):
    return name.startswith(FORBIDDEN_IMPORTS) and name != "xml.sax.saxutils"  # it only escapes


def calls():
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                keywords = {word.arg: word.value for word in node.keywords}
                yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.func), keywords


def is_constant(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def test_the_tree_holds_no_call_that_runs_what_a_file_says():
    found = [
        f"{where}: {name}"
        for where, name, _ in calls()
        if any(name == each or name.endswith(f".{each}") for each in FORBIDDEN - {"eval"})
        or name == "eval"
    ]
    assert found == []


def test_the_tree_imports_no_parser_that_trusts_its_input():
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path}: {name}" for name in names if is_forbidden(name)]
    assert found == []


def test_every_load_of_tensors_is_weights_only():
    seen = [(where, words) for where, name, words in calls() if name == "torch.load"]
    assert len(seen) >= 3
    assert [w for w, words in seen if not is_constant(words.get("weights_only"), True)] == []


def test_no_load_of_arrays_allows_pickle():
    loads = ("np.load", "numpy.load")
    assert [where for where, name, words in calls() if name in loads] == []


def test_every_load_of_yaml_is_a_safe_one():
    for where, name, words in calls():
        if name in ("yaml.load", "yaml.compose"):
            assert ast.unparse(words["Loader"]) in SAFE_LOADERS, where


def test_no_command_goes_through_a_shell():
    for where, name, words in calls():
        if name.startswith("subprocess."):
            assert "shell" not in words, where


def test_a_checkpoint_with_a_reducer_is_refused(hostile_file):
    with pytest.raises(CheckpointError, match="holds more than tensors and plain values") as caught:
        CheckpointStore(hostile_file.parent).load(hostile_file)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_with_a_reducer_is_passed_over_though_its_digest_is_right(
    hostile_file, tmp_path, caplog
):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save({"update": 1, "network": {}}, update=1)
    digest = hashlib.sha256(hostile_file.read_bytes()).hexdigest()[:16]
    hostile_file.rename(store.directory / f"update-00000009-{digest}.pt")
    assert store.newest()["update"] == 1
    assert "trying the checkpoint before it" in caplog.text


@pytest.mark.parametrize("variable", ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"])
def test_the_environment_cannot_switch_the_safe_reading_off(hostile_file, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(WeightsError):
        read_weights(hostile_file)


@pytest.mark.parametrize("read", [read_weights, lambda path: read_foreign(path, epoch=None)])
def test_initial_weights_and_foreign_checkpoints_with_a_reducer_are_refused(hostile_file, read):
    with pytest.raises(WeightsError, match="is not read for safety") as caught:
        read(hostile_file)
    assert "\n" not in str(caught.value)


def test_pretrained_weights_with_a_reducer_are_refused(hostile_file):
    with pytest.raises(ModelWeightsError, match="is not read for safety") as caught:
        read_state_dict(hostile_file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("step", ["train", "evaluate", "predict"])
def test_a_step_refuses_a_hostile_checkpoint_in_one_sentence(
    store, hostile_file, tmp_path, trace, step
):
    import importlib

    config = str(ROOT / "configs" / "detection" / "quickstart.yaml")
    (tmp_path / "classes.json").write_text('{"names": ["a"], "ids": [1]}')
    (tmp_path / "in.jpg").write_bytes(b"")
    arguments = {
        "train": ["--config", config, "--resume", str(hostile_file)],
        "evaluate": ["--config", config, "--checkpoint", str(hostile_file)],
        "predict": [
            *("--source", str(hostile_file), "--input", str(tmp_path / "in.jpg")),
            *("--config", config, "--output", str(tmp_path / "out")),
        ],
    }[step]
    command = importlib.import_module(f"steps.{step}").main
    result = CliRunner().invoke(command, [*arguments, "--device", "cpu"])
    assert result.exit_code == 1
    assert "Error: " in result.output
    assert "tensors and plain values" in result.output
    assert "Traceback" not in result.output


def headers():
    """Safetensors files whose header lies: longer than the file, no JSON, beyond its end."""
    beyond = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 10**12]}}).encode()
    yield "endless", struct.pack("<Q", 2**63)
    yield "not json", struct.pack("<Q", 4) + b"\x80\x04}."
    yield "beyond", struct.pack("<Q", len(beyond)) + beyond
    yield "empty", b""


@pytest.mark.parametrize(("kind", "data"), headers(), ids=[kind for kind, _ in headers()])
def test_a_safetensors_header_that_lies_is_refused(tmp_path, kind, data):
    from steps.serving import load_predictor
    from tasks.predictor import ModelError

    path = tmp_path / "weights.safetensors"
    path.write_bytes(data)
    with pytest.raises(WeightsError):
        read_weights(path)
    with pytest.raises(ModelError, match=r"weights\.safetensors: not a readable safetensors file"):
        load_predictor(path, tmp_path / "config.yaml", tmp_path / "classes.json")


def test_importing_the_project_allows_no_further_classes_in_checkpoints():
    """What other libraries add to torch's list is what weights-only reading would make."""
    import steps.serving  # noqa: F401

    own = [each for each in torch.serialization.get_safe_globals() if _is_of_project(each)]
    assert own == []


def _is_of_project(each):
    return (getattr(each, "__module__", "") or "").split(".")[0] in PACKAGES
