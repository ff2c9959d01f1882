"""Comparison of a documentation page's table of settings with the settings section in code."""

import re
from pathlib import Path

from pydantic import BaseModel

from runtime.settings.loading import display, environment_variable

DOCS = Path(__file__).parent.parent.parent / "docs"


def check_each_setting_is_documented(page: str, name: str, section: BaseModel) -> None:
    """Check that each setting has a row with its variable and default, and that each row belongs to a setting.

    Args:
        page: file name in docs; its table has lines of ``| `name.key` | `VARIABLE` | default | meaning |``.
        name: name of the section.
        section: the section with its default values.
    """
    rows = {
        row[0].strip("`"): row[1:]
        for line in (DOCS / page).read_text().splitlines()
        if line.startswith(f"| `{name}.") and (row := [cell.strip() for cell in line.strip("|").split(" | ")])
    }
    assert set(rows) == {f"{name}.{key}" for key in type(section).model_fields}
    for setting, (variables, default, meaning) in rows.items():
        value = display(getattr(section, setting.partition(".")[2]))
        assert re.findall(r"`([A-Z_]+)`", variables) == [environment_variable(setting)]
        assert default == (f"`{value.lower() if value in {'True', 'False'} else value}`" if value else "none")
        assert meaning
