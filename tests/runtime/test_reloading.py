"""Values that are rebuilt when their files change."""

from pathlib import Path

import pytest

from runtime.server.reloading import ReloadingValue


def test_a_changed_file_is_read_once(tmp_path: Path) -> None:
    """A changed file is read once at the next use, and an unchanged one is not read again."""
    file, builds = tmp_path / "file", []
    file.write_text("one")

    def build() -> str:
        builds.append(file.read_text())
        return builds[-1]

    value = ReloadingValue([file], build)
    assert [value.get(), value.get()] == ["one", "one"]
    file.write_text("three")
    assert [value.get(), value.get()] == ["three", "three"]
    assert builds == ["one", "three"]


def test_a_swapped_symbolic_link_is_noticed(tmp_path: Path) -> None:
    """A file behind swapped symbolic links, as in Kubernetes' Secret volumes, is read again."""
    for name, text in (("first", "one"), ("second", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(text)
    (tmp_path / "data").symlink_to("first")
    (tmp_path / "file").symlink_to("data/file")
    value = ReloadingValue([tmp_path / "file"], (tmp_path / "file").read_text)
    assert value.get() == "one"
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "data")
    assert value.get() == "two"


def test_an_invalid_file_keeps_the_last_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While a file is missing or invalid, the last value stays, and the log has the reason once."""
    file = tmp_path / "number"
    file.write_text("1")
    value = ReloadingValue([file], lambda: int(file.read_text()))
    file.write_text("many")
    assert [value.get(), value.get()] == [1, 1]
    file.unlink()
    assert [value.get(), value.get()] == [1, 1]
    file.write_text("22")
    assert value.get() == 22
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "many" in caplog.records[0].error
    assert "No such file" in caplog.records[1].error


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    """A file that cannot be read at the start is an error."""
    with pytest.raises(OSError, match="No such file"):
        ReloadingValue([tmp_path / "file"], (tmp_path / "file").read_text)
