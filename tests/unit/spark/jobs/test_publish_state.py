"""What a publishing job remembers."""

from pathlib import Path

import pytest

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.publish_state import PublishState, state_file

MAPPING, SIZES = {"tag": None}, {"file:/a": 3}


def opened(file: Path, *, sizes: dict[str, int] = SIZES, is_dry: bool = False) -> PublishState:
    return PublishState.open(file, dict(MAPPING), dict(sizes), 5, is_dry)


def test_what_is_done_is_known_to_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "new" / "j.json"
    state = opened(file)
    assert not state.has_begun
    assert not file.exists()
    state.begin()
    state.add(["A"])
    state.add(["B"])
    again = opened(file)
    assert (again.has_begun, again.is_done, again.done) == (True, False, {"A", "B"})
    again.finish()
    assert opened(file).is_done
    assert opened(file, is_dry=True).done == set()


def test_other_files_are_another_job(tmp_path: Path) -> None:
    opened(tmp_path / "j.json", sizes=SIZES).begin()
    for sizes in ({"file:/a": 4}, {}, {**SIZES, "file:/b": 1}):
        with pytest.raises(JobError, match="has changed, come or gone since job j began"):
            opened(tmp_path / "j.json", sizes=sizes)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "j.json").write_text("{")
    with pytest.raises(JobError, match=r"j\.json can't be read"):
        opened(tmp_path / "j.json")


@pytest.mark.parametrize("job_id", ["", "a/b", "..", "x" * 101, "a b"])
def test_a_job_id_is_a_name_of_a_file(job_id: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="job id"):
        state_file(job_id, tmp_path)
