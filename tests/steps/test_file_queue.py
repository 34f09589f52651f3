"""Artifacts wait as local copies, newest first where several share a path."""

from steps.file_queue import FileQueue


def _contents(queue):
    return [(entry.artifact, entry.local.read_text()) for entry in queue.pending()]


def test_entries_outlive_the_process(tmp_path):
    FileQueue(tmp_path).add_bytes(b"one", "plots/a.txt")
    queue = FileQueue(tmp_path)
    queue.add_bytes(b"two", "b.txt")
    assert _contents(queue) == [("plots/a.txt", "one"), ("b.txt", "two")]
    assert [entry.artifact_folder for entry in queue.pending()] == ["plots", None]


def test_a_newer_checkpoint_replaces_one_that_waits(tmp_path):
    queue = FileQueue(tmp_path)
    for text in ("old", "new"):
        source = tmp_path / f"update-{text}.pt"
        source.write_text(text)
        queue.add_link(source, "checkpoints/last.pt", not_before=0.0)
        source.unlink()  # rotation
    assert _contents(queue) == [("checkpoints/last.pt", "new")]


def test_a_file_that_is_being_sent_is_not_replaced(tmp_path):
    queue = FileQueue(tmp_path)
    queue.add_bytes(b"old", "a.txt")
    in_flight = queue.next()
    queue.add_bytes(b"new", "a.txt")
    assert in_flight.local.read_text() == "old"
    queue.done(in_flight)
    assert _contents(queue) == [("a.txt", "new")]


def test_a_copy_does_not_change_with_its_source(tmp_path):
    source = tmp_path / "report.txt"
    source.write_text("then")
    queue = FileQueue(tmp_path)
    queue.add_copy(source, "report.txt")
    source.write_text("now")
    assert _contents(queue) == [("report.txt", "then")]


def test_entries_that_may_wait_do_so_until_the_end(tmp_path):
    source = tmp_path / "last.pt"
    source.write_text("x")
    queue = FileQueue(tmp_path)
    queue.add_link(source, "last.pt", not_before=100.0)
    assert queue.next(now=99.0) is None
    assert queue.next(now=100.0) is not None
    assert queue.next(now=None) is not None
