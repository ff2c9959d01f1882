"""What is made of files is made anew when they change."""

from pathlib import Path

import pytest

from runtime.server.reloading import ReloadingValue


def test_it_is_made_anew_when_a_file_changes(tmp_path: Path) -> None:
    """A changed file is read once, at the next use; one that is the same is not read again."""
    file, made = tmp_path / "file", []
    file.write_text("one")

    def make() -> str:
        made.append(file.read_text())
        return made[-1]

    value = ReloadingValue([file], make)
    assert [value.get(), value.get()] == ["one", "one"]
    file.write_text("three")
    assert [value.get(), value.get()] == ["three", "three"]
    assert made == ["one", "three"]


def test_what_a_volume_swaps_is_seen(tmp_path: Path) -> None:
    """A file behind symbolic links that are swapped, as Kubernetes does with secrets, is read anew."""
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


def test_what_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While a file is gone or wrong the last value stays and the log says why, once; then the file counts again."""
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


def test_the_first_time_it_must_be_there(tmp_path: Path) -> None:
    """A file that cannot be read at the start is an error, not an empty value."""
    with pytest.raises(OSError, match="No such file"):
        ReloadingValue([tmp_path / "file"], (tmp_path / "file").read_text)
