"""A page that lists the settings of a section, against the section."""

import re
from pathlib import Path

from pydantic import BaseModel

from runtime.settings.loading import display, environment_variable

DOCS = Path(__file__).parent.parent.parent / "docs"


def check_each_setting_is_documented(page: str, name: str, section: BaseModel) -> None:
    """Check that every setting has its row, with its variable and its default, and that no row is left over.

    Args:
        page: in docs, which has a table with lines of ``| `name.key` | `VARIABLE` | default | meaning |``.
        name: of the section.
        section: with its defaults.
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
