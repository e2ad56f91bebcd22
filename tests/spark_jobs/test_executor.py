"""One table from job to function: no job that an executor cannot do."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from app.core.plan.jobs import Job
from spark_jobs.executor import JOBS
from tests.services.executor import METHODS, PythonExecutor


def test_every_job_has_its_function() -> None:
    assert JOBS.keys() == METHODS.keys() == {*get_args(Job)}


@pytest.mark.parametrize("job", get_args(Job), ids=lambda job: job.__name__)
def test_the_function_of_a_job_takes_that_job(job: type) -> None:
    assert get_type_hints(JOBS[job])["job"] is job
    assert get_type_hints(getattr(PythonExecutor, METHODS[job]))["job"] is job
