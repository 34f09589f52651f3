"""The YAML dialect: its traps, its line numbers, its messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.layers import expand_variables
from steps.problems import ConfigError, Place
from steps.yaml_source import dump, find, read_file, read_text, values

PLACE = Place("a.yaml", 1, Path("/folder"))


def read(text: str):
    return read_text(text, place=PLACE)


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-.5e+2", -50.0),
        ("1.", 1.0),
        ("7", 7),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("null", None),
        ("2024-01-02", "2024-01-02"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("'1e-3'", "1e-3"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("e5", "e5"),
        ("=", "="),
    ],
)
def test_plain_scalars_are_what_a_person_expects(text: str, value: object) -> None:
    read_back = values(read(f"key: {text}"))["key"]
    assert read_back == value
    assert type(read_back) is type(value)


def test_keys_stay_text_whatever_they_look_like() -> None:
    assert values(read("{off: 1, 2: 3, null: 4, true: 5}")) == {
        "off": 1,
        "2": 3,
        "null": 4,
        "true": 5,
    }


def test_every_value_knows_its_line() -> None:
    root = read("a: 1\nb:\n  c: 2\n  d:\n    - x\n    - y\n")
    assert [str(find(root, path).place) for path in [("a",), ("b", "c"), ("b", "d", 1)]] == [
        "a.yaml:1",
        "a.yaml:3",
        "a.yaml:6",
    ]


def test_a_path_beyond_the_tree_finds_the_section_it_would_be_in() -> None:
    root = read("a: 1\nb:\n  c: 2\n")
    assert str(find(root, ("b", "missing", "deeper")).place) == "a.yaml:2"


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "base: &b {lr: 1, eps: 2}\nmore: &m {eps: 3, x: 4}\nown: {<<: [*b, *m], lr: 5}\n"
    assert values(read(text))["own"] == {"lr": 5, "eps": 2, "x": 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3: a: the key 'a' is given twice; it is also on line 1"),
        ("a:\n  b: 1\n  b: 1\n", "a.yaml:3: a.b: the key 'b' is given twice"),
        ("a:\n\tb: 1\n", "a.yaml:2: a tab stands where YAML wants blanks"),
        ("a: 1\n\tb: 1\n", "a.yaml:2: a tab stands where YAML wants blanks"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: a second document begins here"),
        ("a: [1, 2\nb: 3\n", "a.yaml:2: not readable as YAML"),
        ("a: b: c\n", "(a text that holds `: ` needs quotes)"),
        ("a: *nothing\n", "a.yaml:1: not readable as YAML: found undefined alias"),
        ("a: &a [*a]\n", "an alias leads back into itself"),
        ("a: !!python/object:os.system x\n", "a.yaml:1: a: the tag !!python/object:os.system"),
        ("a: !!set {x}\n", "the tag !!set is not allowed"),
        ("a: !mine {x: 1}\n", "the tag !mine is not allowed"),
        ("a: .inf\n", "a.yaml:1: a: .inf is not allowed: must be a finite number"),
        ("a: .nan\n", "must be a finite number"),
        ("a: 1e999\n", "must be a finite number"),
        ("? [x, y]\n: 1\n", "a key must be text"),
        ("a: {<<: 3}\n", "`<<` takes a mapping"),
        ("a: \x01\n", "control character"),
        ("[" * 3000, "nested too deeply"),
    ],
)
def test_what_is_not_allowed_is_told_with_its_line(text: str, said: str) -> None:
    assert said in complaint(text)


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "multiply beyond measure" in complaint("\n".join(lines))


def test_all_duplicate_keys_are_told_at_once() -> None:
    assert len(complaint("a: 1\na: 2\nb: 1\nb: 2\n").splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "e.yaml:1: the file is empty"),
        (b"# only a comment\n", "e.yaml:1: the file is empty"),
        (b"- a\n- b\n", "e.yaml:1: the file holds a list; an experiment is a mapping"),
        (b"just text\n", "e.yaml:1: the file holds the value 'just text'"),
        ("name: é\n".encode("latin-1"), "e.yaml:1: byte 0xe9 is not UTF-8 text"),
        ("name: x\n".encode("utf-16"), "e.yaml:1: byte 0xff is not UTF-8 text"),
    ],
)
def test_files_that_hold_no_mapping_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(path, source="e.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffa: 1\nb: ü\n".encode(),
        "a: 1\r\nb: ü\r\n".encode(),
        "\ufeff---\na: 1\nb: ü\n...\n".encode(),
    ],
)
def test_byte_order_marks_and_windows_line_ends_are_fine(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(content)
    root = read_file(path, source="e.yaml")
    assert values(root) == {"a": 1, "b": "ü"}


def test_variables_may_stand_inside_of_flow_mappings() -> None:
    root = read("train: {images: ${DATA}/coco, size: ${SIZE:-a, b: c}}\n")
    expanded, problems = expand_variables(root, {"DATA": "/d"})
    assert not problems
    assert values(expanded) == {"train": {"images": "/d/coco", "size": "a, b: c"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${N}", 3),
        ("'${N}'", "3"),
        ("${EMPTY:-0.5}", 0.5),
        ("${MISSING:-}", None),
        ("'${MISSING:-}'", ""),
        ("x${N}${N}", "x33"),
        ("$${N}", "${N}"),
        ("$N", "$N"),
        ("${NESTED}", "${N}"),
    ],
)
def test_variables_are_replaced_once_and_read_again(text: str, value: object) -> None:
    environ = {"N": "3", "EMPTY": "", "NESTED": "${N}"}
    expanded, problems = expand_variables(read(f"a: {text}"), environ)
    assert not problems
    assert values(expanded) == {"a": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${GONE}", "a.yaml:1: a: the environment variable GONE is not set"),
        ("'${a b}'", "${a b} is not allowed: write ${NAME}"),
        ("'${OPEN'", "${OPEN is not allowed"),
        ("'${}'", "${} is not allowed"),
    ],
)
def test_variables_without_value_are_told(text: str, said: str) -> None:
    _, problems = expand_variables(read(f"a: {text}"), {})
    assert said in str(problems[0])


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=12)
    | st.sampled_from(
        ["off", "1e-3", "${A}", "$${A}", "<<", "=", "2024-01-02", "0o7", "a: b", "\t"]
    )
)
keys = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


@settings(deadline=None)
@given(st.dictionaries(keys, trees, max_size=4))
def test_a_dump_reads_back_as_the_same_values(tree: dict) -> None:
    expanded, problems = expand_variables(read(dump(tree)), {"A": "changed"})
    assert not problems
    assert values(expanded) == tree


@settings(deadline=None)
@given(st.dictionaries(keys, st.text(st.characters(categories=["L", "N", "P"]), max_size=9)))
def test_other_yaml_readers_see_the_same_text_in_a_dump(tree: dict) -> None:
    escaped = {key: value.replace("${", "$${") for key, value in tree.items()}
    assert yaml.safe_load(dump(tree)) == escaped
