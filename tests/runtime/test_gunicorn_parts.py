"""The parts of gunicorn on which the server's worker builds, and which gunicorn may change without notice."""

import inspect
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import get_parser
from gunicorn.http.wsgi import Response, create
from gunicorn.workers.base import Worker


@pytest.mark.parametrize(
    ("part", "parameters"),
    [
        (get_parser, "cfg source source_addr"),
        (create, "req sock client server cfg"),
        (Response, "req sock cfg"),
        (Response.start_response, "self status headers exc_info"),
        (Response.should_close, "self"),
        (Response.write, "self arg"),
        (Response.close, "self"),
        (Worker, "age ppid sockets app timeout cfg log"),
        (Worker.run, "self"),
        (Worker.notify, "self"),
        (Worker.init_process, "self"),
        (Worker.handle_exit, "self sig frame"),
        (Worker.handle_quit, "self sig frame"),
    ],
)
def test_each_part_has_the_parameters_that_we_pass(part: Callable[..., Any], parameters: str) -> None:
    """Names and order of the parameters are those for which the worker was written; any further one has a default."""
    found, known = inspect.signature(part).parameters, parameters.split()
    assert list(found)[: len(known)] == known
    further = list(found.values())[len(known) :]
    assert all(
        each.default is not each.empty or each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD} for each in further
    )


def test_the_version_is_one_that_was_tested() -> None:
    """The installed version is that of the bound in pyproject.toml."""
    assert metadata.version("gunicorn").startswith("27.")
    assert {"PIPE", "SIGNALS"} <= set(vars(Worker))
    assert Config().settings["http_parser"].get() in {"auto", "fast", "python"}
